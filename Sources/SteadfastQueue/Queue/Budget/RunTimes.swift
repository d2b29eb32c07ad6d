import SystemFoundation

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

/// How long the last attempts of each name took: a value of the store.
///
/// The value is a JSON object: the seconds of each name, the latest last. It holds nothing that
/// can't be measured again, so one that makes no sense counts as an empty one.
struct RunTimes: Sendable, Equatable {
  /// Of how many attempts the average is the mean.
  static let averaging = 3

  private var seconds: [String: [Double]] = [:]

  init() {}

  /// Reads a value; `nil` is an empty one.
  init(_ bytes: [UInt8]?) {
    guard let bytes else { return }
    seconds = (try? JSONDecoder().decode([String: [Double]].self, from: Data(bytes))) ?? [:]
  }

  /// The bytes of the value.
  ///
  /// If there is no room for all names, some are left out, the longest names first.
  func bytes(limit: Int = TaskQueueError.maxValueSize) throws -> [UInt8] {
    var kept = seconds
    var bytes = try StableJSON.encode(kept)
    for name in seconds.keys.sorted(by: { ($0.utf8.count, $0) > ($1.utf8.count, $1) })
    where bytes.count > limit {
      kept[name] = nil
      bytes = try StableJSON.encode(kept)
    }
    return bytes
  }

  /// The name of the value; each queue of a group has its own.
  static let valueName = "steadfast.runtimes"

  /// The names of which an attempt was measured.
  var names: some Sequence<String> { seconds.keys }

  /// The mean of the last attempts of a name; `nil` if none was measured.
  func average(of name: String) -> Duration? {
    seconds[name]?.meanDuration
  }

  /// Notes how long an attempt took.
  mutating func add(_ time: Duration, of name: String) {
    seconds[name, default: []].append(time, keeping: Self.averaging)
  }

  /// Forgets the attempt of a name that is longest ago.
  mutating func forgetOldest(of name: String) {
    guard var all = seconds[name] else { return }
    all.removeFirst()
    seconds[name] = all.isEmpty ? nil : all
  }
}

/// How long something took the last times, in seconds, the latest one last.
extension [Double] {
  /// The mean of the times; `nil` if there are none.
  var meanDuration: Duration? {
    guard !isEmpty else { return nil }
    // A store may say anything. A mean below zero would leave room for others that is not there.
    return .seconds(Swift.min(Swift.max(0, reduce(0, +) / Double(count)), 1e9))
  }

  /// Adds a time, and keeps the latest ones.
  mutating func append(_ time: Duration, keeping count: Int) {
    append(Swift.max(0, time / .seconds(1)))
    self = Array(suffix(count))
  }
}
