#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The parts of a record: what seldom changes, what few tasks have, and what has gone wrong.
///
/// They are apart because a record is small: it holds references to them.
extension TaskRecord {
  /// The part of a task that seldom changes.
  ///
  /// A restart may drop its expiry date, and an update may change it.
  struct Definition: Sendable {
    private(set) var id: TaskID
    let name: String
    var payload: StoredPayload
    // After a limit, the flag would take another word. Here it uses space that the payload leaves
    // free.
    private var isRetriedAlways: Bool
    var usesBackoff: Bool
    var priority: TaskQueue.Priority
    var createdDate: Date
    let uniqueKey: String?
    var extras: Rare<Extras>
    private var retryLimit: Int

    init(
      id: TaskID,
      name: String,
      payload: StoredPayload,
      maxRetries: RetryLimit,
      usesBackoff: Bool,
      priority: TaskQueue.Priority,
      createdDate: Date,
      uniqueKey: String?,
      extras: Rare<Extras>
    ) {
      self.id = id
      self.name = name
      self.payload = payload
      (isRetriedAlways, retryLimit) = Self.parts(of: maxRetries)
      self.usesBackoff = usesBackoff
      self.priority = priority
      self.createdDate = createdDate
      self.uniqueKey = uniqueKey
      self.extras = extras
    }

    var maxRetries: RetryLimit {
      get { isRetriedAlways ? .alwaysRetry : .atMost(retryLimit) }
      set { (isRetriedAlways, retryLimit) = Self.parts(of: newValue) }
    }

    func replacing(id: TaskID) -> Definition {
      var definition = self
      definition.id = id
      return definition
    }

    private static func parts(of limit: RetryLimit) -> (isRetriedAlways: Bool, retryLimit: Int) {
      switch limit {
      case .atMost(let count): (false, count)
      case .alwaysRetry: (true, 0)
      }
    }
  }

  /// A definition that records share, so that moving one copies one reference.
  final class SharedDefinition: Sendable {
    let value: Definition

    init(_ value: Definition) { self.value = value }
  }

  /// The options that are chosen for few tasks.
  struct Extras: RareValue {
    var tags: Set<String> = []
    var timeLimit: Duration?
    var expiryDate: Date?
    var uniqueUntil: Date?
    var latestDate: Date?
    var queue = ""
    var memorySize = 0
    var prerequisites = Rare<Prerequisites>()

    var isEmpty: Bool {
      tags.isEmpty && timeLimit == nil && expiryDate == nil && uniqueUntil == nil
        && latestDate == nil && queue.isEmpty && memorySize == 0 && prerequisites.isEmpty
    }
  }

  /// What a task waits for besides its date.
  struct Prerequisites: RareValue {
    var orderKey: String?
    /// The place among the tasks with the order key; 0 until a table has given one.
    var orderNumber: UInt64 = 0
    var holdsOrder = false
    var conditions: Set<TaskCondition> = []
    var dependencies = Rare<TaskDependencies>()

    var isEmpty: Bool {
      orderKey == nil && !holdsOrder && conditions.isEmpty && dependencies.isEmpty
    }
  }

  /// What has happened to a task, above all what has gone wrong with it.
  struct FailureState: RareValue {
    var retryCount = 0
    var interruptionCount = 0
    var lastError: String?
    var failedDate: Date?
    var earlierFailures: [TaskFailure] = []
    var isPostponed = false
    var countedFrom: Date?

    var isEmpty: Bool {
      retryCount == 0 && interruptionCount == 0 && lastError == nil && failedDate == nil
        && earlierFailures.isEmpty && !isPostponed && countedFrom == nil
    }

    var lastFailure: TaskFailure? {
      guard let lastError, let failedDate else { return nil }
      return TaskFailure(reason: lastError, date: failedDate)
    }
  }
}
