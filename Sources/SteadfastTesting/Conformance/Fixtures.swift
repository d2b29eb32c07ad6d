import SteadfastQueue
import SystemFoundation

extension TaskID {
  /// Makes an ID that looks like a generated one; the IDs sort like their numbers.
  static func numbered(_ number: Int) -> TaskID {
    TaskID(high: 0x0190_0000_0000_7000, low: 0x8000_0000_0000_0000 | UInt64(number))
  }

  var number: Int { Int(low & 0xffff_ffff) }
}

extension Date {
  private static let base = 700_000_000.0

  /// Returns the date this many seconds after the start date that all checks share.
  static func second(_ seconds: Double) -> Date {
    Date(timeIntervalSinceReferenceDate: base + seconds)
  }

  var second: Double { timeIntervalSinceReferenceDate - Self.base }

  /// The date as shown in the steps of a report.
  var step: String { "\(second) s" }
}

extension TaskRecord {
  /// Makes a task with this number in its ID and, by default, in its payload.
  static func numbered(
    _ number: Int,
    name: String = "A",
    priority: Int = 0,
    at seconds: Double = 0,
    key: String? = nil,
    uniqueUntil: Double? = nil,
    latest: Double? = nil,
    created: Double = 0,
    from origin: Double? = nil,
    payload: Int? = nil,
    version: Int = 1,
    order: String? = nil,
    holds: Bool = false,
    requires conditions: Set<TaskCondition> = [],
    tags: Set<String> = [],
    metadata: [String: String] = [:],
    expires: Date? = nil
  ) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: name,
      payload: StoredPayload(
        Array("{\"number\":\(payload ?? number)}".utf8),
        format: .json,
        version: version
      ),
      priority: TaskQueue.Priority(rawValue: priority),
      createdDate: .second(created),
      uniqueKey: key,
      uniqueUntil: uniqueUntil.map(Date.second),
      latestDate: latest.map(Date.second),
      orderKey: order,
      blocksOrderOnFailure: holds,
      conditions: conditions,
      tags: tags,
      metadata: metadata,
      expiryDate: expires,
      availableDate: .second(seconds),
      countedFrom: origin.map(Date.second)
    )
  }

  /// Returns a copy that the closure has changed.
  func with(_ change: (inout TaskRecord) -> Void) -> TaskRecord {
    var record = self
    change(&record)
    return record
  }

  /// Makes a task in which every field that callers can choose has a distinctive value.
  static func withAllFields(_ number: Int) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: "naïve \"task\" \\ 任務 🎈 \(number)",
      payload: StoredPayload(
        [0, 1, 10, 13, 34, 92, 127, 128, 254, 255],
        format: .binary,
        version: 7
      ),
      priority: TaskQueue.Priority(rawValue: -number),
      createdDate: .second(-1.234_567),
      maxRetries: .atMost(3),
      usesBackoff: false,
      uniqueKey: "key 'ключ'; -- \(number)",
      orderKey: "order \"🎈\" \(number)",
      blocksOrderOnFailure: true,
      conditions: ["network", "with space", "🎈"],
      tags: ["plain", "with space", "🎈", "line\nfeed"],
      metadata: ["tenant": "eins", "\"ключ\" \\": "line\nfeed 🎈 'quoted'", "empty": ""],
      timeLimit: .milliseconds(1_500) + .microseconds(25),
      expiryDate: .second(86_400.654_321),
      availableDate: .second(0.123_456),
      countedFrom: .second(-1.234_567)
    )
  }
}

extension TaskFailure {
  /// Makes a failure this many seconds after the start date that all checks share.
  ///
  /// For odd seconds, it is not known how the attempt failed.
  static func at(_ seconds: Double, _ reason: String = "no route") -> TaskFailure {
    let attempt = FailedAttempt(.timedOut, duration: .seconds(seconds), holder: "höst 1 queue")
    let isKnown = Int(seconds).isMultiple(of: 2)
    return TaskFailure(
      reason: reason,
      date: .second(seconds),
      attempt: isKnown ? attempt : nil
    )
  }
}

// MARK: - Comparing

extension TaskRecord {
  /// Returns whether two dates are equal, as precisely as databases store dates.
  static func isSame(_ left: Date?, _ right: Date?) -> Bool {
    switch (left, right) {
    case (nil, nil): true
    case (let left?, let right?):
      // Adjacent representable dates are an eighth of a microsecond apart today, and eight
      // microseconds in the year 1.
      abs(left.timeIntervalSince(right)) <= 1e-6 + 4 * right.timeIntervalSince1970.ulp
    default: false
    }
  }

  private static func isSame(_ left: String?, _ right: String?) -> Bool {
    left.map(ExactText.init) == right.map(ExactText.init)
  }

  private static func isSame(_ left: Set<String>, _ right: Set<String>) -> Bool {
    left.count == right.count && left.allSatisfy(right.containsExactly)
  }

  private static func isSame(_ left: [String: String], _ right: [String: String]) -> Bool {
    left.count == right.count && left.containsExactly(right)
  }

  private static func isSame(_ left: [TaskFailure], _ right: [TaskFailure]) -> Bool {
    left.count == right.count
      && zip(left, right).allSatisfy { left, right in
        left.reason.isExactly(right.reason) && isSame(left.date, right.date)
          && isSame(left.attempt?.text, right.attempt?.text)
      }
  }

  private static func isSame(_ left: Duration?, _ right: Duration?) -> Bool {
    guard let left, let right else { return left == right }
    return max(left, right) - min(left, right) <= .microseconds(1)
  }

  /// Returns the first field in which this record differs from the expected record `other`.
  func difference(
    from other: TaskRecord
  ) -> (field: String, expected: String, found: String)? {
    var difference: (field: String, expected: String, found: String)?
    // Make the descriptions only if there is a difference: records are compared very often.
    func compare<Value>(
      _ field: String,
      _ value: KeyPath<TaskRecord, Value>,
      _ isSame: (Value, Value) -> Bool,
      _ describe: (Value) -> String = { "\($0)" }
    ) {
      let (found, expected) = (self[keyPath: value], other[keyPath: value])
      guard difference == nil, !isSame(found, expected) else { return }
      difference = (field, describe(expected), describe(found))
    }
    func text(_ date: Date?) -> String { date?.step ?? "none" }
    compare("id", \.id, ==)
    compare("name", \.name, Self.isSame)
    compare("queue", \.queue, Self.isSame)
    compare("payload", \.storedBytes, ==) { "\($0.count) bytes \($0.prefix(80))" }
    compare("payload.format", \.payload.format, ==)
    compare("payload.version", \.payload.version, ==)
    compare("priority", \.priority.rawValue, ==)
    compare("createdDate", \.createdDate, Self.isSame, text)
    compare("maxRetries", \.maxRetries, ==)
    compare("usesBackoff", \.usesBackoff, ==)
    compare("uniqueKey", \.uniqueKey, Self.isSame) { $0 ?? "none" }
    compare("keyRole", \.keyRole, ==) { $0.map { "\($0)" } ?? "none" }
    compare("uniqueUntil", \.uniqueUntil, Self.isSame, text)
    compare("latestDate", \.latestDate, Self.isSame, text)
    compare("orderKey", \.orderKey, Self.isSame) { $0 ?? "none" }
    compare("blocksOrderOnFailure", \.blocksOrderOnFailure, ==)
    compare("conditions", \.conditions, ==) { "\($0.sorted())" }
    compare("dependencies", \.dependencies, ==, \.summary)
    compare("tags", \.tags, Self.isSame) { "\($0.sorted())" }
    compare("metadata", \.metadata, Self.isSame) { $0.step }
    compare("timeLimit", \.timeLimit, Self.isSame) { $0.map { "\($0)" } ?? "none" }
    compare("expiryDate", \.expiryDate, Self.isSame, text)
    compare("state", \.state, ==)
    compare("availableDate", \.availableDate, Self.isSame, text)
    compare("countedFrom", \.countedFrom, Self.isSame, text)
    compare("retryCount", \.retryCount, ==)
    compare("interruptionCount", \.interruptionCount, ==)
    compare("memorySize", \.memorySize, ==)
    compare("lastError", \.lastError, Self.isSame) { $0 ?? "none" }
    compare("failedDate", \.failedDate, Self.isSame, text)
    compare("failedAttempt", \.failedAttempt?.text, Self.isSame) { $0 ?? "none" }
    compare("failures", \.failures, Self.isSame) { failures in
      "\(failures.map { "'\($0.reason.prefix(80))' (\($0.attempt?.text ?? "-")) at \($0.date.step)" })"
    }
    compare("command", \.command, ==) { $0?.rawValue ?? "none" }
    compare("parkedVersion", \.parkedVersion, ==) { $0.map { "\($0)" } ?? "none" }
    compare("isPostponed", \.isPostponed, ==)
    compare("finishedDate", \.finishedDate, Self.isSame, text)
    return difference
  }

  /// The payload's bytes; empty if the payload can't be encoded, which never happens in a check.
  private var storedBytes: [UInt8] { (try? payload.bytes()) ?? [] }
}
