public import SystemFoundation

/// A limit on the number of attempts that a queue's tasks may begin within an interval.
///
/// ```swift
/// let configuration = TaskQueueConfiguration(
///   maxConcurrentTasks: 8,
///   rateLimits: [
///     .atMost(10, per: .seconds(1)),
///     .atMost(100, per: .seconds(60), of: Mail.self),
///     .atMost(50, per: .seconds(86_400), of: Export.self, key: \.account),
///   ]
/// )
/// ```
/// The limit applies to every interval of this length, whenever it begins. Retries count like first
/// attempts. The starts are stored before the attempts begin, so a limit holds across restarts, and
/// for all processes that share a store: <doc:RateLimits>.
public struct RateLimit: Sendable {
  /// How many attempts may begin within the interval.
  public let count: Int
  /// The length of the interval.
  public let interval: Duration
  /// The names of the tasks that the limit applies to; `nil` for all tasks of the queue.
  let names: [String]?
  /// For a limit with keys, returns the key of a task; `nil` if the payload can't be decoded.
  let key: (@Sendable (TaskRecord) -> String?)?

  private init(
    _ interval: Duration,
    _ count: Int,
    names: [String]? = nil,
    key: (@Sendable (TaskRecord) -> String?)? = nil
  ) {
    self.count = count
    self.interval = interval
    self.names = names
    self.key = key
  }

  /// A limit for all tasks of the queue.
  ///
  /// - Parameters:
  ///   - count: how many attempts may begin within the interval; at least 1. Up to 1,024 may all
  ///     begin at once. For a higher count, the interval is divided evenly, so that at most 1,024
  ///     begin at once.
  ///   - interval: the length of the interval, from a millisecond to 10,000 days.
  /// - Returns: The limit.
  public static func atMost(_ count: Int, per interval: Duration) -> RateLimit {
    RateLimit(interval, count)
  }

  /// A limit for the tasks of one payload type, under its current and its former names.
  ///
  /// - Parameters:
  ///   - count: how many attempts may begin within the interval, as for ``atMost(_:per:)``.
  ///   - interval: the length of the interval, as for ``atMost(_:per:)``.
  ///   - type: the payload type.
  /// - Returns: The limit.
  public static func atMost<Payload: TaskPayload>(
    _ count: Int,
    per interval: Duration,
    of type: Payload.Type
  ) -> RateLimit {
    RateLimit(interval, count, names: names(of: type))
  }

  /// A limit for the tasks of one payload type that have the same key, such as an account.
  ///
  /// If all starts of a task's key are used up, the task is postponed until the key has a free
  /// start: the task's available date changes, and tasks with other keys go ahead. Stores get a
  /// number that is derived from the key, not the key itself.
  ///
  /// - Parameters:
  ///   - count: how many attempts with one key may begin within the interval, as for
  ///     ``atMost(_:per:)``.
  ///   - interval: the length of the interval, as for ``atMost(_:per:)``.
  ///   - type: the payload type.
  ///   - key: returns the key of a payload. Two keys are the same if their descriptions are. The
  ///     function is called each time a task is claimed.
  /// - Returns: The limit.
  public static func atMost<Payload: TaskPayload, Key: CustomStringConvertible>(
    _ count: Int,
    per interval: Duration,
    of type: Payload.Type,
    key: @escaping @Sendable (Payload) -> Key
  ) -> RateLimit {
    RateLimit(interval, count, names: names(of: type)) { record in
      (try? record.payload(as: type)).map { key($0).description }
    }
  }

  /// A limit for the tasks with one name.
  ///
  /// - Parameters:
  ///   - count: how many attempts may begin within the interval, as for ``atMost(_:per:)``.
  ///   - interval: the length of the interval, as for ``atMost(_:per:)``.
  ///   - name: the name that the tasks were enqueued under.
  /// - Returns: The limit.
  public static func atMost(
    _ count: Int,
    per interval: Duration,
    named name: String
  ) -> RateLimit {
    RateLimit(interval, count, names: [name])
  }

  private static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }

  // MARK: Checking

  static let longestInterval = Duration.seconds(10_000 * 86_400)
  /// The maximum length of the name of a limit, in bytes of UTF-8.
  ///
  /// The limit's name becomes part of the name of a stored value, which may have at most 1,024
  /// bytes.
  private static let maxNameLength = 512

  /// Throws if the limit's count, interval or name is invalid.
  func validate() throws(TaskQueueError) {
    guard count >= 1 else {
      throw TaskQueueError(
        .invalidArgument,
        "a rate limit allows \(count) starts; give 1 or more, or pause the queue or the tasks' name "
          + "if no task may start"
      )
    }
    guard interval >= .milliseconds(1), interval <= Self.longestInterval else {
      throw TaskQueueError(
        .invalidArgument,
        "the interval of a rate limit is \(interval); give an interval from 1 millisecond to 10,000 days"
      )
    }
    guard RateWindow(count, per: interval).interval >= RateWindow.shortestInterval else {
      throw TaskQueueError(
        .invalidArgument,
        "a rate limit allows \(count) starts per \(interval), more than a queue can start, so "
          + "it would have no effect; remove it"
      )
    }
    guard let name = names?[0] else { return }
    guard !name.isEmpty, name.utf8.count <= Self.maxNameLength else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a rate limit has \(name.utf8.count) bytes of UTF-8; give a name of 1 to "
          + "\(Self.maxNameLength) bytes"
      )
    }
    try TaskQueueError.check(string: name, "the name of a rate limit")
  }
}

extension RateLimit: CustomStringConvertible {
  /// A description such as `100 per 60.0 seconds of Mail`.
  public var description: String {
    let scope = names.map { " of \($0[0])\(key == nil ? "" : " with one key")" } ?? ""
    return "\(count) per \(interval)\(scope)"
  }
}

/// A rate limit of a queue as the store has it, and how much of it is used.
///
/// A queue stores its limits when it first runs. So ``TaskQueue/rateLimits()`` returns them in any
/// process that uses the store.
public struct StoredRateLimit: Sendable, Hashable {
  /// The name of the value with a queue's limits.
  static let valueName = "steadfast.limits"

  /// How many attempts may begin within the interval, at most 1,024.
  ///
  /// A limit with a higher count is divided: 10,000 a minute are 1,000 every six seconds here.
  public let count: Int
  /// The length of the interval.
  public let interval: Duration
  /// The names of the tasks that the limit applies to; `nil` for all tasks of the queue.
  public let names: [String]?
  /// Whether the limit applies to the tasks of each key on their own.
  ///
  /// Then the starts of the keys are not looked up, and the properties that follow are `nil`.
  public let hasKeys: Bool
  /// How many attempts have begun within the interval that ends now; `nil` if the limit has keys.
  public private(set) var startCount: Int?
  /// The date at which the limit allows the next start; `nil` if it allows one now.
  public private(set) var nextStart: Date?
  /// Until when a handler has paused the limit (``TaskSnoozed/Scope/rateLimit``); `nil` if it is
  /// not paused.
  public private(set) var pausedUntil: Date?

  private init(_ fields: Fields) {
    count = fields.count
    interval = .microseconds(fields.microseconds)
    names = fields.names
    hasKeys = fields.keys ?? false
  }

  /// Decodes the value with a queue's limits; `nil` means that it has none.
  ///
  /// - Throws: A ``TaskQueueError`` if the value can't be decoded.
  static func limits(_ bytes: [UInt8]?) throws(TaskQueueError) -> [StoredRateLimit] {
    guard let bytes else { return [] }
    do {
      return try JSONDecoder().decode([Fields].self, from: Data(bytes)).map(StoredRateLimit.init)
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "this version of the package can't decode the value '\(valueName)', which holds the queue's "
          + "rate limits; use the version that stored them, or run the queue, which replaces them",
        underlying: error
      )
    }
  }

  /// Returns the value with a queue's limits, a JSON array.
  ///
  /// If not all limits fit into a value, it has only the first ones.
  static func bytes(for limits: [RateLimit]) throws -> [UInt8] {
    var fields = limits.map(Fields.init)
    while true {
      let bytes = try StableJSON.encode(fields)
      if bytes.count <= TaskQueueError.maxValueSize { return bytes }
      fields.removeLast(fields.count / 2)
    }
  }

  /// The name of the value with the starts; `nil` if the limit has keys.
  var startsValueName: String? {
    hasKeys ? nil : RateLimits.valueName(for: names)
  }

  /// Sets how much of the limit is used, as the value with the starts says it.
  ///
  /// - Parameters:
  ///   - bytes: the value.
  ///   - date: the current date.
  ///   - hasOneClock: whether all processes that use the store share a clock.
  mutating func setUse(_ bytes: [UInt8]?, at date: Date, hasOneClock: Bool) {
    let window = RateWindow(count, per: interval)
    let now = date.microseconds
    // The queue treats a value that it can't decode, and dates in the future, in the same way.
    var history =
      StartHistories(bytes)?[StartHistories.onlyKey]
      ?? StartHistory(starts: Array(repeating: now, count: window.count))
    history.rebase(to: now, at: now, tolerance: RateLimits.tolerance(hasOneClock: hasOneClock))
    let limiter = RateLimiter(windows: [window], history: history)
    startCount = history.starts.count { $0 > now - window.interval }
    let next = limiter.nextStart(from: now)
    nextStart = next > now ? Date(microseconds: next) : nil
    pausedUntil = history.pause.flatMap { $0.end > now ? Date(microseconds: $0.end) : nil }
  }

  /// The fields of a limit in the value.
  private struct Fields: Codable {
    var count: Int
    var keys: Bool?
    var microseconds: Int64
    var names: [String]?

    init(_ limit: RateLimit) {
      let window = RateWindow(limit.count, per: limit.interval)
      count = window.count
      keys = limit.key == nil ? nil : true
      microseconds = window.interval
      names = limit.names
    }
  }
}
