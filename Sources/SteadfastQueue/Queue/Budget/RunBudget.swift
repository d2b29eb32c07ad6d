/// The time that a run has, and what it learns about how long attempts take.
struct RunBudget: Sendable {
  /// When the time is up, by the queue's stopwatch.
  let deadline: Duration
  private var times: RunTimes
  /// What this run has measured, in order.
  private(set) var measured: [(name: String, time: Duration)] = []
  /// The names whose tasks did not fit into the time when the run began.
  private(set) var tooLong: Set<String> = []
  private var hasClaimed = false

  init(deadline: Duration, times: RunTimes) {
    self.deadline = deadline
    self.times = times
  }

  /// Returns how many tasks of each name may be claimed: none of those that can't be expected to
  /// end before the deadline, and none at all from then on.
  mutating func room(in room: [String: Int], at now: Duration) -> [String: Int] {
    let left = deadline - now
    guard left > .zero else { return room.mapValues { _ in 0 } }
    let long = times.names.filter { name in times.average(of: name).map { $0 > left } ?? false }
    if !hasClaimed { tooLong = Set(long) }
    hasClaimed = true
    guard !long.isEmpty else { return room }
    var room = room
    for name in long { room[name] = 0 }
    return room
  }

  /// Notes how long an attempt took.
  ///
  /// One that was cut short before the deadline says nothing. One that was cut short at the
  /// deadline takes longer than it had, which may be much longer. It counts twice its time, or the
  /// average if that is longer. With its time alone, a name whose attempts begin late would always
  /// seem to fit.
  mutating func note(_ time: Duration, of name: String, wasCutShort: Bool, at now: Duration) {
    guard !wasCutShort || now >= deadline else { return }
    let time = wasCutShort ? max(time * 2, times.average(of: name) ?? .zero) : time
    times.add(time, of: name)
    measured.append((name, time))
  }

  /// Adds what the run has learned to what the store has by then.
  ///
  /// `waiting` are the names of ``tooLong`` of which tasks wait. They were left out because of
  /// times that may have been exceptions, so the oldest of them is forgotten: after three such runs
  /// at most, one attempt is made again.
  func update(_ stored: inout RunTimes, waiting: Set<String>) {
    for (name, time) in measured { stored.add(time, of: name) }
    for name in waiting { stored.forgetOldest(of: name) }
  }
}
