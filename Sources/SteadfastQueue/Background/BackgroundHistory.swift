import SystemFoundation

/// When background tasks have run, and how long they took, stored as one value of the store.
///
/// The value is a JSON object. Everything in it can be measured again, so a malformed value counts
/// as an empty history.
struct BackgroundHistory: Sendable, Equatable, Codable {
  struct Entry: Sendable, Equatable, Codable {
    /// When the task's last run began, in seconds since 1970.
    var lastRun: Double?
    /// When the first pass with this task began, in seconds since 1970.
    var since: Double?
    /// The durations of the task's last runs in seconds, the latest one last.
    var durations: [Double] = []
  }

  /// When the last pass began, in seconds since 1970.
  private(set) var lastPass: Double?
  private(set) var tasks: [String: Entry] = [:]

  init() {}

  /// Reads the history from the bytes of its value; `nil` is an empty history.
  init(_ bytes: [UInt8]?) {
    guard let bytes,
      let history = try? JSONDecoder().decode(BackgroundHistory.self, from: Data(bytes))
    else { return }
    self = history
  }

  /// Returns the bytes of the value.
  ///
  /// If the bytes exceed the limit, tasks that are not in `names` are dropped, beginning with the
  /// task whose last run is the longest ago. If that is not enough, averages include fewer runs. If
  /// that is still not enough, tasks in `names` are dropped in the same order: a dropped task ranks
  /// as if it had never run, which is nearly the same.
  func bytes(keeping names: Set<String>, limit: Int = TaskQueueError.maxValueSize) throws -> [UInt8]
  {
    var history = self
    let ordered = tasks.sorted {
      ($0.value.lastRun ?? 0, $0.key) < ($1.value.lastRun ?? 0, $1.key)
    }
    var bytes = try StableJSON.encode(history)
    for (name, _) in ordered where bytes.count > limit && !names.contains(name) {
      history.tasks[name] = nil
      bytes = try StableJSON.encode(history)
    }
    while bytes.count > limit, history.halveDurations() {
      bytes = try StableJSON.encode(history)
    }
    for (name, _) in ordered where bytes.count > limit {
      history.tasks[name] = nil
      bytes = try StableJSON.encode(history)
    }
    return bytes
  }

  /// Halves the maximum number of durations of a task, keeping the latest ones.
  ///
  /// - Returns: Whether there were any durations.
  private mutating func halveDurations() -> Bool {
    let count = tasks.values.map(\.durations.count).max() ?? 0
    tasks = tasks.mapValues { entry in
      var entry = entry
      entry.durations = Array(entry.durations.suffix(count / 2))
      return entry
    }
    return count > 0
  }

  /// Returns when the task's last run began; `nil` if it has never run.
  func lastRun(of name: String) -> Date? {
    tasks[name]?.lastRun.map(Date.init(timeIntervalSince1970:))
  }

  /// Returns when the first pass with the task began; `nil` if there was no such pass.
  func firstPass(with name: String) -> Date? {
    tasks[name]?.since.map(Date.init(timeIntervalSince1970:))
  }

  /// Returns the mean duration of the task's last runs; `nil` if no run was measured.
  func averageDuration(of name: String) -> Duration? {
    tasks[name]?.durations.meanDuration
  }

  /// Returns the date from which the next pass may begin; `nil` if there was no pass before.
  func earliestNextPass(interval: Duration, now: Date) -> Date? {
    // If the last pass is in the future, the clock was set back since, so that pass is ignored.
    guard let lastPass, lastPass <= now.timeIntervalSince1970 else { return nil }
    return Date(timeIntervalSince1970: lastPass + interval / .seconds(1))
  }

  /// Records that some of the scheduler's tasks begin to run.
  ///
  /// The history is stored before they run. So a task that crashes its process each time does not
  /// come first in every pass.
  mutating func recordStart(
    of names: [String],
    registered known: Set<String>,
    at date: Date,
    isPass: Bool
  ) {
    let seconds = date.timeIntervalSince1970
    if isPass { lastPass = seconds }
    for name in known where tasks[name]?.since == nil {
      tasks[name, default: Entry()].since = seconds
    }
    for name in names { tasks[name, default: Entry()].lastRun = seconds }
  }

  /// Records how long a run of a task took; the average includes the last `count` runs.
  mutating func recordRun(of name: String, lasting duration: Duration, averaging count: Int) {
    tasks[name, default: Entry()].durations.append(duration, keepingLast: count)
  }
}

/// Decides which background tasks run in a pass, by Selene's rule.
///
/// A task's score is its priority × the time since its last run, both normalised: the priority to
/// the highest of the five, the time to the longest of all tasks. In the order of their scores,
/// tasks run if their average duration fits into the remaining budget. No task starves: when a task
/// runs, its score drops to zero, and the scores of the others keep rising in relation to it.
///
/// A task that has never run ranks as if it had waited longest. Its wait counts from the first pass
/// that included it: if the wait did not grow from pass to pass, a more important task could be
/// ahead of the new task forever.
struct BackgroundRanking: Sendable {
  struct Candidate: Sendable, Equatable {
    var priority: BackgroundPriority
    var averageDuration: Duration
    /// When the task's last run began; `nil` if it has never run.
    var lastRun: Date?
    /// When the first pass with the task began; `nil` if there was no such pass.
    var since: Date?
  }

  private let candidates: [Candidate]
  /// The score of each candidate, from 0 to 1.
  let scores: [Double]

  init(_ candidates: [Candidate], now: Date) {
    self.candidates = candidates
    // If a date is in the future, the clock was set back since, so that date is ignored.
    func wait(since date: Date?) -> Double? {
      date.flatMap { $0 <= now ? now.timeIntervalSince($0) : nil }
    }
    let waits = candidates.map { wait(since: $0.lastRun) }
    let longest =
      zip(candidates, waits).map { $1 ?? wait(since: $0.since) ?? 0 }.max() ?? 0
    scores = zip(candidates, waits).map { candidate, wait in
      let priority =
        Double(candidate.priority.rawValue) / Double(BackgroundPriority.veryHigh.rawValue)
      // If no candidate has waited for any time, the priority alone decides.
      guard let wait, longest > 0 else { return priority }
      return priority * wait / longest
    }
  }

  /// The indices of the candidates in the order of their scores, the highest first.
  ///
  /// Of candidates with equal scores, those that have never run come first, and then those with
  /// lower indices.
  var order: [Int] {
    let hasRun = candidates.map { $0.lastRun == nil ? 0 : 1 }
    return candidates.indices.sorted {
      (scores[$0], hasRun[$1], $1) > (scores[$1], hasRun[$0], $0)
    }
  }

  /// Returns the indices of the candidates that run within a budget, in the order of their scores.
  func selection(within budget: Duration) -> [Int] {
    Self.indicesThatFit(order, durations: candidates.map(\.averageDuration), within: budget)
  }

  /// Returns the indices of the candidates that fit into a budget together, tried in `order`.
  ///
  /// A candidate that does not fit is skipped, and later ones may still fit. A candidate that takes
  /// longer than the whole budget counts as if it took all of it: otherwise it would never run
  /// again.
  static func indicesThatFit(
    _ order: [Int],
    durations: [Duration],
    within budget: Duration
  ) -> [Int] {
    var left = max(budget, .zero)
    guard left > .zero else { return [] }
    return order.filter { index in
      let duration = min(durations[index], budget)
      guard duration <= left else { return false }
      left -= duration
      return true
    }
  }
}
