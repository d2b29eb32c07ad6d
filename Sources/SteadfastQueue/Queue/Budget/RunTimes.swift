import SystemFoundation

/// The time that a run has, and its measurements of how long attempts take.
struct RunBudget: Sendable {
  /// When the time is up, by the queue's stopwatch.
  let deadline: Duration
  private var times: RunTimes
  /// The times that this run has measured, in order.
  private(set) var measured: [(name: String, time: Duration)] = []
  /// The names whose tasks did not fit into the budget when the run began.
  private(set) var tooLong: Set<String> = []
  private var hasClaimed = false

  init(deadline: Duration, times: RunTimes) {
    self.deadline = deadline
    self.times = times
  }

  /// Returns how many tasks of each name may be claimed: none of a name whose average exceeds the
  /// remaining time, and none at all after the deadline.
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

  /// Records how long an attempt took.
  ///
  /// An attempt that was cut short before the deadline does not count. One that was cut short at
  /// the deadline needed more time, perhaps much more. It counts as twice its time, or as the
  /// average if that is longer. With its own time alone, a name whose attempts begin late would
  /// always seem to fit.
  mutating func addRunTime(_ time: Duration, of name: String, wasCutShort: Bool, at now: Duration) {
    guard !wasCutShort || now >= deadline else { return }
    let time = wasCutShort ? max(time * 2, times.average(of: name) ?? .zero) : time
    times.add(time, of: name)
    measured.append((name, time))
  }

  /// Adds the run's measurements to the stored ones.
  ///
  /// `waiting` contains the names of ``tooLong`` that have waiting tasks. They were skipped because
  /// of times that may have been exceptions, so the oldest time is dropped: after three such runs
  /// at most, the name gets an attempt again.
  func update(_ stored: inout RunTimes, waiting: Set<String>) {
    for (name, time) in measured { stored.add(time, of: name) }
    for name in waiting { stored.forgetOldest(of: name) }
  }
}

/// How long the last attempts of each name took, stored as a value.
///
/// The value is a JSON object: the seconds of each name, the latest last. All of it can be measured
/// again, so an invalid value counts as an empty one.
struct RunTimes: Sendable, Equatable {
  /// The number of attempts in an average.
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
  /// If the JSON exceeds the limit, names are left out with their times, the longest names first.
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

  /// The names with a measured attempt.
  var names: some Sequence<String> { seconds.keys }

  /// The mean of the last attempts of a name; `nil` if none was measured.
  func average(of name: String) -> Duration? {
    seconds[name]?.meanDuration
  }

  /// Records how long an attempt took.
  mutating func add(_ time: Duration, of name: String) {
    seconds[name, default: []].append(time, keeping: Self.averaging)
  }

  /// Drops the oldest time of a name.
  mutating func forgetOldest(of name: String) {
    guard var all = seconds[name] else { return }
    all.removeFirst()
    seconds[name] = all.isEmpty ? nil : all
  }
}

/// Durations in seconds, the latest one last.
extension [Double] {
  /// The mean of the times; `nil` if there are none.
  var meanDuration: Duration? {
    guard !isEmpty else { return nil }
    // A store may contain anything. A mean below zero would leave time that does not exist.
    return .seconds(Swift.min(Swift.max(0, reduce(0, +) / Double(count)), 1e9))
  }

  /// Adds a time, and drops all but the latest ones.
  mutating func append(_ time: Duration, keeping count: Int) {
    append(Swift.max(0, time / .seconds(1)))
    self = Array(suffix(count))
  }
}
