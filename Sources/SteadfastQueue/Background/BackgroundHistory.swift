import SystemFoundation

/// When background tasks have run, and how long they took.
///
/// The history is stored as a JSON object, in one value of a store. Everything in it can be
/// measured again, so malformed JSON counts as an empty history.
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

  /// Reads the history from its JSON; `nil` or malformed JSON gives an empty history.
  init(_ bytes: [UInt8]?) {
    guard let bytes,
      let history = try? JSONDecoder().decode(BackgroundHistory.self, from: Data(bytes))
    else { return }
    self = history
  }

  /// Returns the history as JSON of at most `limit` bytes.
  ///
  /// If the history is too long, tasks that are not in `names` are removed, beginning with the task
  /// whose last run is the longest ago. If that is not enough, averages include fewer runs. If that
  /// is still not enough, tasks in `names` are removed in the same order: a removed task ranks as
  /// if it had never run.
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

  /// Limits the number of durations of each task to half of the current maximum, keeping the latest
  /// ones.
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
    // If the last pass is in the future, the clock was set back since then, and that pass is
    // ignored.
    guard let lastPass, lastPass <= now.timeIntervalSince1970 else { return nil }
    return Date(timeIntervalSince1970: lastPass + interval / .seconds(1))
  }

  /// Records that tasks begin to run.
  ///
  /// The history is stored before the tasks run. So a task that crashes its process each time does
  /// not come first in every pass.
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
/// A task's score is its priority × the time since its last run: the priority as a fraction of the
/// highest priority, the time as a fraction of the longest time of all tasks. In the order of their
/// scores, tasks run if their average duration fits into the remaining budget. No task starves:
/// when a task runs, its score drops to zero, and the scores of the others rise in relation to it.
///
/// A task that has never run ranks as if it had waited longest. Its time counts from the first pass
/// that included it: if the time did not grow from pass to pass, a more important task could be
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
    // If a date is in the future, the clock was set back since then, and the date is ignored.
    func wait(since date: Date?) -> Double? {
      date.flatMap { $0 <= now ? now.timeIntervalSince($0) : nil }
    }
    let waits = candidates.map { wait(since: $0.lastRun) }
    let longest =
      zip(candidates, waits).map { $1 ?? wait(since: $0.since) ?? 0 }.max() ?? 0
    scores = zip(candidates, waits).map { candidate, wait in
      let priority =
        Double(candidate.priority.rawValue) / Double(BackgroundPriority.veryHigh.rawValue)
      // If no candidate has waited at all, only the priority decides.
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
  /// A candidate that does not fit is skipped, but later ones may fit. A candidate that takes
  /// longer than the whole budget counts as if it took the whole budget: otherwise it would never
  /// run again.
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
