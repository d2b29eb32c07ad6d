#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// When background tasks have run, and how long they took: a value of the store.
///
/// The value is a JSON object. It holds nothing that can't be measured again, so one that makes no
/// sense counts as an empty one.
struct BackgroundHistory: Sendable, Equatable, Codable {
  struct Entry: Sendable, Equatable, Codable {
    /// When it has begun last, in seconds since 1970.
    var lastRun: Double?
    /// When the first pass began that knew of it, in seconds since 1970.
    var since: Double?
    /// How many seconds its last runs took, the latest one last.
    var durations: [Double] = []
  }

  /// When the last pass began, in seconds since 1970.
  private(set) var lastPass: Double?
  private(set) var tasks: [String: Entry] = [:]

  init() {}

  /// Reads a value; `nil` is an empty one.
  init(_ bytes: [UInt8]?) {
    guard let bytes,
      let history = try? JSONDecoder().decode(BackgroundHistory.self, from: Data(bytes))
    else { return }
    self = history
  }

  /// Returns the bytes of the value.
  ///
  /// If there is no room for all of it, the tasks that are not named are dropped, beginning with
  /// the one whose last run is the longest ago. If that is not enough, averages are those of fewer
  /// runs. If even the names have no room, those are dropped whose last runs are the longest ago:
  /// they rank as if they had never run, which is nearly the same.
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

  /// Keeps at most half as many durations of each task as one has, the latest ones.
  ///
  /// - Returns: Whether there were any.
  private mutating func halveDurations() -> Bool {
    let count = tasks.values.map(\.durations.count).max() ?? 0
    tasks = tasks.mapValues { entry in
      var entry = entry
      entry.durations = Array(entry.durations.suffix(count / 2))
      return entry
    }
    return count > 0
  }

  /// When the task has begun last; `nil` if it never has.
  func lastRun(of name: String) -> Date? {
    tasks[name]?.lastRun.map(Date.init(timeIntervalSince1970:))
  }

  /// When the first pass began that knew of the task; `nil` if none has.
  func since(_ name: String) -> Date? {
    tasks[name]?.since.map(Date.init(timeIntervalSince1970:))
  }

  /// The mean of the task's last runs; `nil` if none was measured.
  func averageDuration(of name: String) -> Duration? {
    tasks[name]?.durations.meanDuration
  }

  /// Returns when the next pass may begin, if there was one before.
  func nextPass(after interval: Duration, now: Date) -> Date? {
    // A pass in the future comes from a clock that was set back, and says nothing.
    guard let lastPass, lastPass <= now.timeIntervalSince1970 else { return nil }
    return Date(timeIntervalSince1970: lastPass + interval / .seconds(1))
  }

  /// Notes that some of the tasks that a scheduler knows begin.
  ///
  /// It is stored before they do. So a task that ends its process each time is not the first in
  /// each pass.
  mutating func begin(_ names: [String], of known: Set<String>, at date: Date, isPass: Bool) {
    let seconds = date.timeIntervalSince1970
    if isPass { lastPass = seconds }
    for name in known where tasks[name]?.since == nil {
      tasks[name, default: Entry()].since = seconds
    }
    for name in names { tasks[name, default: Entry()].lastRun = seconds }
  }

  /// Notes how long a run of a task took; the average is that of the last `count` runs.
  mutating func end(_ name: String, after duration: Duration, averaging count: Int) {
    tasks[name, default: Entry()].durations.append(duration, keeping: count)
  }
}
