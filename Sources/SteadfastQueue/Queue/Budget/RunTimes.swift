import SystemFoundation

/// The deadline of a run, and measurements of how long attempts take.
struct RunBudget: Sendable {
  /// The time on the queue's stopwatch at which the budget is used up.
  let deadline: Duration
  private var times: RunTimes
  /// How long the attempts of this run took, in the order in which they ended.
  private(set) var measured: [(name: String, time: Duration)] = []
  /// The names whose attempts took longer, on average, than the budget that was left at the run's
  /// first claim.
  private(set) var namesTooLong: Set<String> = []
  private var hasClaimed = false

  init(deadline: Duration, times: RunTimes) {
    self.deadline = deadline
    self.times = times
  }

  /// Returns the maximum number of tasks with each name in a claim: 0 for a name whose average
  /// exceeds the remaining time, 0 for all names after the deadline, and otherwise the given limit.
  mutating func claimLimits(from limits: [String: Int], at now: Duration) -> [String: Int] {
    let left = deadline - now
    guard left > .zero else { return limits.mapValues { _ in 0 } }
    let long = times.names.filter { name in times.average(of: name).map { $0 > left } ?? false }
    if !hasClaimed { namesTooLong = Set(long) }
    hasClaimed = true
    guard !long.isEmpty else { return limits }
    var limits = limits
    for name in long { limits[name] = 0 }
    return limits
  }

  /// Records how long an attempt took.
  ///
  /// An attempt that was cut short before the deadline does not count. An attempt that was cut
  /// short at the deadline counts as twice its duration, or as the name's average if that is
  /// longer: it would have taken longer, by an unknown time. If only the measured duration counted,
  /// an attempt that started shortly before the deadline would make the average too short.
  mutating func addRunTime(_ time: Duration, of name: String, wasCutShort: Bool, at now: Duration) {
    guard !wasCutShort || now >= deadline else { return }
    let time = wasCutShort ? max(time * 2, times.average(of: name) ?? .zero) : time
    times.add(time, of: name)
    measured.append((name, time))
  }

  /// Adds the run's measurements to the stored ones.
  ///
  /// `skippedNames` contains the names in ``namesTooLong`` that have waiting tasks. Of each, the
  /// oldest measurement is dropped, because it may have been an exception. So after three such runs
  /// at most, the name has no measurements, and an attempt starts.
  func update(_ stored: inout RunTimes, skippedNames: Set<String>) {
    for (name, time) in measured { stored.add(time, of: name) }
    for name in skippedNames { stored.removeOldestTime(of: name) }
  }
}

/// How long the last attempts at tasks with each name took.
///
/// This is stored as a JSON object: for each name, an array of seconds, the latest last. An object
/// that can't be decoded counts as empty, because everything in it can be measured again.
struct RunTimes: Sendable, Equatable {
  /// The number of attempts in an average.
  private static let attemptsPerAverage = 3

  private var seconds: [String: [Double]] = [:]

  init() {}

  /// Decodes the stored bytes; `nil` means that nothing was measured.
  init(_ bytes: [UInt8]?) {
    guard let bytes else { return }
    seconds = (try? JSONDecoder().decode([String: [Double]].self, from: Data(bytes))) ?? [:]
  }

  /// Returns the bytes to store.
  ///
  /// If the JSON is longer than the limit, the longest names are left out, with their times.
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

  /// The name of the value under which the times are stored.
  static let valueName = "steadfast.runtimes"

  /// The names that have measurements.
  var names: some Sequence<String> { seconds.keys }

  /// The average duration of the last attempts; `nil` if none was measured.
  func average(of name: String) -> Duration? {
    seconds[name]?.meanDuration
  }

  mutating func add(_ time: Duration, of name: String) {
    seconds[name, default: []].append(time, keepingLast: Self.attemptsPerAverage)
  }

  mutating func removeOldestTime(of name: String) {
    guard var all = seconds[name] else { return }
    all.removeFirst()
    seconds[name] = all.isEmpty ? nil : all
  }
}

/// Durations in seconds, the latest one last.
extension [Double] {
  /// The mean of the durations; `nil` if there are none.
  var meanDuration: Duration? {
    guard !isEmpty else { return nil }
    // The numbers come from a store, so they may be negative or huge.
    return .seconds(Swift.min(Swift.max(0, reduce(0, +) / Double(count)), 1e9))
  }

  /// Adds a duration, and then removes all but the last `count` durations.
  mutating func append(_ time: Duration, keepingLast count: Int) {
    append(Swift.max(0, time / .seconds(1)))
    self = Array(suffix(count))
  }
}
