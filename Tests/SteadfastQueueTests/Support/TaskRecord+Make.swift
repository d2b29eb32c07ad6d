import Foundation

@testable import SteadfastQueue

extension TaskID {
  /// An ID for tests.
  ///
  /// IDs sort in the order of their numbers.
  static func numbered(_ number: Int) -> TaskID {
    TaskID(high: UInt64(number), low: UInt64(number))
  }
}

extension TaskRecord {
  /// Makes a task for tests.
  ///
  /// Dates are in seconds since 1970.
  static func make(
    _ number: Int,
    name: String = "Note",
    priority: TaskQueue.Priority = .normal,
    available: Double = 0,
    key: String? = nil,
    created: Double = 0,
    uniqueFor: Double? = nil,
    maxDelay: Double? = nil,
    order: String? = nil,
    holds: Bool = false,
    requires conditions: Set<TaskCondition> = [],
    dependencies: TaskDependencies? = nil,
    expires: Date? = nil
  ) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: name,
      payload: StoredPayload(Array(#"{"text":"\#(number)"}"#.utf8), format: .json),
      priority: priority,
      createdDate: .seconds(created),
      uniqueKey: key,
      uniqueUntil: uniqueFor.map { .seconds(created + $0) },
      latestDate: maxDelay.map { .seconds(created + $0) },
      orderKey: order,
      blocksOrderOnFailure: holds,
      conditions: conditions,
      dependencies: dependencies,
      expiryDate: expires,
      availableDate: .seconds(available)
    )
  }
}

extension Date {
  static func seconds(_ seconds: Double) -> Date { Date(timeIntervalSince1970: seconds) }
}

extension TaskTable {
  @discardableResult
  mutating func insert(_ record: TaskRecord, onDuplicate policy: UniquePolicy = .keep)
    -> ChangeOutcome
  {
    apply([.insert(record, onDuplicate: policy)])[0]
  }

  mutating func claim(_ limit: Int, _ names: [String: Int] = ["Note": .max], at now: Double = 0)
    -> [ClaimedTask]
  {
    claim(ClaimRequest(limit: limit, names: names, now: .seconds(now))).tasks
  }
}

extension [ClaimedTask] {
  /// The numbers of the tasks, which tests made.
  var numbers: [Int] { map { Int($0.lease.id.low) } }
}
