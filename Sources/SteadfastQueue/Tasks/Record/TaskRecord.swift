public import SystemFoundation

/// A task in the form that is stored, and that look-ups and events return.
///
/// A record is small, because a queue may have a million of them.
public struct TaskRecord: Sendable, Identifiable {
  var shared: SharedDefinition
  var failureState: Boxed<FailureState>
  // The order of the properties matters, here and below: a flag that follows an optional uses space
  // that the optional leaves free.

  /// The date from which the task may be performed; after a failure, the date of the retry.
  public var availableDate: Date
  /// When the task ended; `nil` if it has not ended.
  public var finishedDate: Date?
  /// Where the task is in its life.
  public var state: TaskState
  /// The task's role for its unique key; `nil` if it has no key, or has ended.
  ///
  /// It is also `nil` for an expired task whose key now belongs to a newer task. A new task has no
  /// role: the store sets it.
  public var keyRole: UniqueKeyRole?

  /// Makes a record, as a store does from stored values.
  ///
  /// If `isPostponed` is `nil`, a task that has retries counts as postponed.
  public init(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    priority: TaskQueue.Priority = .normal,
    createdDate: Date,
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    uniqueKey: String? = nil,
    keyRole: UniqueKeyRole? = nil,
    uniqueUntil: Date? = nil,
    latestDate: Date? = nil,
    orderKey: String? = nil,
    blocksOrderOnFailure: Bool = false,
    conditions: Set<TaskCondition> = [],
    dependencies: TaskDependencies? = nil,
    queue: String = "",
    tags: Set<String> = [],
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    memorySize: Int = 0,
    state: TaskState = .waiting,
    availableDate: Date,
    countedFrom: Date? = nil,
    retryCount: Int = 0,
    interruptionCount: Int = 0,
    lastError: String? = nil,
    failedDate: Date? = nil,
    earlierFailures: [TaskFailure] = [],
    isPostponed: Bool? = nil,
    finishedDate: Date? = nil
  ) {
    shared = SharedDefinition(
      Definition(
        id: id,
        name: name,
        payload: payload,
        maxRetries: maxRetries,
        usesBackoff: usesBackoff,
        priority: priority,
        createdDate: createdDate,
        uniqueKey: uniqueKey,
        extras: Boxed(
          Extras(
            tags: tags,
            timeLimit: timeLimit,
            expiryDate: expiryDate,
            uniqueUntil: uniqueUntil,
            latestDate: latestDate,
            queue: queue,
            memorySize: memorySize,
            prerequisites: Boxed(
              Prerequisites(
                orderKey: orderKey,
                blocksOrderOnFailure: blocksOrderOnFailure,
                conditions: conditions,
                dependencies: dependencies.map { Boxed($0) } ?? Boxed()
              )
            )
          )
        )
      )
    )
    failureState = Boxed(
      FailureState(
        retryCount: retryCount,
        interruptionCount: interruptionCount,
        lastError: lastError,
        failedDate: failedDate,
        earlierFailures: Self.latestStorable(of: earlierFailures),
        isPostponed: isPostponed ?? (retryCount > 0),
        countedFrom: availableDate == createdDate && countedFrom == createdDate ? nil : countedFrom
      )
    )
    self.state = state
    self.keyRole = keyRole
    self.availableDate = availableDate
    self.finishedDate = finishedDate
  }

  /// Makes a new task without chosen options, faster than the other initializer.
  init(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    usesBackoff: Bool,
    uniqueKey: String?,
    now: Date
  ) {
    shared = SharedDefinition(
      Definition(
        id: id,
        name: name,
        payload: payload,
        maxRetries: 10,
        usesBackoff: usesBackoff,
        priority: .normal,
        createdDate: now,
        uniqueKey: uniqueKey,
        extras: Boxed()
      )
    )
    failureState = Boxed()
    state = .waiting
    keyRole = nil
    availableDate = now
    finishedDate = nil
  }

  /// The task's identity.
  public var id: TaskID { shared.value.id }
  /// The name under which the task's handler is registered.
  public var name: String { shared.value.name }
  /// The value that the task carries.
  public var payload: StoredPayload { shared.value.payload }
  /// The task's rank among the available tasks.
  public var priority: TaskQueue.Priority { shared.value.priority }
  /// When the task was enqueued.
  public var createdDate: Date { shared.value.createdDate }
  /// How many times the task may be retried.
  public var maxRetries: RetryLimit { shared.value.maxRetries }
  /// Whether a failure is followed by the queue's backoff, or by another attempt at once.
  public var usesBackoff: Bool { shared.value.usesBackoff }
  /// The key that deduplicates tasks of the same name; `nil` if the task has none.
  ///
  /// ``keyRole`` is the task's role for this key.
  public var uniqueKey: String? { shared.value.uniqueKey }
  /// The date until which, after the success of this task, a new task with its key is a duplicate.
  ///
  /// If the date is `nil`, a new task can be added as soon as this task has ended
  /// (``TaskOptions/uniqueFor``).
  public var uniqueUntil: Date? { shared.value.extras.present?.uniqueUntil }
  /// The date beyond which no replacement postpones the task; `nil` if there is no such date.
  public var latestDate: Date? { shared.value.extras.present?.latestDate }
  /// The key of the tasks that are performed one at a time, in the order of their insertion.
  ///
  /// It is `nil` for a task without order. Tasks with other names may have the same key.
  public var orderKey: String? { prerequisites?.orderKey }
  /// Whether later tasks with the order key wait after this task has ended without success.
  ///
  /// They wait until this task is restarted or removed.
  public var blocksOrderOnFailure: Bool { prerequisites?.blocksOrderOnFailure ?? false }
  /// The conditions that must hold when an attempt starts.
  public var conditions: Set<TaskCondition> { prerequisites?.conditions ?? [] }
  /// The tasks that this task waits for, and how they have ended.
  ///
  /// A store updates this when those tasks change; <doc:WritingAStore> says how.
  public var dependencies: TaskDependencies {
    get { prerequisites?.dependencies.value ?? TaskDependencies() }
    set {
      var definition = shared.value
      definition.extras.value.prerequisites.value.dependencies.value = newValue
      shared = SharedDefinition(definition)
    }
  }
  /// The task's queue in a ``TaskQueueGroup``; empty if the task belongs to no group.
  ///
  /// Claims, look-ups, unique keys and order keys ignore the tasks of other queues.
  public var queue: String { shared.value.extras.present?.queue ?? "" }
  /// The size of the task's memory in bytes: its names, in UTF-8, and its values.
  ///
  /// A store ignores this size when a task is inserted, because a new task remembers nothing. From
  /// then on, the store keeps it equal to the size of ``Persistence/memory(of:)``.
  ///
  /// A new task remembers nothing, whatever its record says. A store keeps this equal to the size
  /// of ``Persistence/memory(of:)``.
  public var memorySize: Int {
    get { shared.value.extras.present?.memorySize ?? 0 }
    set {
      guard newValue != memorySize else { return }
      var definition = shared.value
      definition.extras.value.memorySize = newValue
      shared = SharedDefinition(definition)
    }
  }
  /// Labels by which tasks are found, and cancelled together.
  public var tags: Set<String> { shared.value.extras.present?.tags ?? [] }
  /// How long one attempt may run; `nil` for no limit.
  public var timeLimit: Duration? { shared.value.extras.present?.timeLimit }
  /// The date from which no attempt starts; `nil` if there is no such date.
  public var expiryDate: Date? { shared.value.extras.present?.expiryDate }

  /// The number of failed attempts.
  public var retryCount: Int {
    get { failureState.present?.retryCount ?? 0 }
    set { failureState.value.retryCount = newValue }
  }
  /// How many times a process ended while it was performing the task, or had claimed it.
  public var interruptionCount: Int {
    get { failureState.present?.interruptionCount ?? 0 }
    set { failureState.value.interruptionCount = newValue }
  }
  /// The text of the last error, cut to 4,096 bytes; `nil` if there was no error.
  public var lastError: String? {
    get { failureState.present?.lastError }
    set { failureState.value.lastError = newValue }
  }
  /// When the last attempt failed; `nil` if no attempt has failed.
  public var failedDate: Date? {
    get { failureState.present?.failedDate }
    set { failureState.value.failedDate = newValue }
  }
  /// Whether the last attempt set ``availableDate``: for a retry, or at the end of a snooze.
  ///
  /// A store sets this on ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)``. It
  /// clears this on ``TaskChange/restart(_:availableDate:forgets:)``,
  /// ``TaskChange/reschedule(_:availableDate:countedFrom:)`` and
  /// ``TaskChange/suspend(_:until:awaiting:countedFrom:)``. The next attempt does not change it,
  /// and neither does a clock that goes back.
  public var isPostponed: Bool {
    get { failureState.present?.isPostponed ?? false }
    set { failureState.value.isPostponed = newValue }
  }
  /// The failures before the last one, the oldest first; stores store them unchanged.
  ///
  /// There are at most four: the latest ones. ``failures`` includes the last failure, too.
  public var earlierFailures: [TaskFailure] {
    get { failureState.present?.earlierFailures ?? [] }
    set { failureState.value.earlierFailures = Self.latestStorable(of: newValue) }
  }

  /// Whether the task has any history, such as retries or failures.
  var hasFailureState: Bool { !failureState.isEmpty }
  /// Whether the task has any of the options that few tasks have.
  var hasExtras: Bool { !shared.value.extras.isEmpty }

  /// Whether the task may wait for something besides its date.
  var hasPrerequisites: Bool {
    guard let extras = shared.value.extras.present else { return false }
    return !extras.prerequisites.isEmpty
  }

  /// Clears the task's history, as if it were new.
  mutating func forgetFailures() { failureState.value = FailureState() }

  /// Returns whether the task has expired by this date, so that no attempt begins.
  func hasExpired(by date: Date) -> Bool { expiryDate.map { $0 <= date } ?? false }

  /// The task's position among the tasks with its order key, which the table assigns.
  var orderNumber: UInt64 { prerequisites?.orderNumber ?? 0 }

  /// The dependencies; `nil` if there are none.
  ///
  /// Reading this property never creates an empty value.
  var presentDependencies: TaskDependencies? { prerequisites?.dependencies.present }

  var prerequisites: Prerequisites? { shared.value.extras.present?.prerequisites.present }

  mutating func setOrderNumber(_ number: UInt64) {
    var definition = shared.value
    definition.extras.value.prerequisites.value.orderNumber = number
    shared = SharedDefinition(definition)
  }

  mutating func removeExpiryDate() {
    var definition = shared.value
    definition.extras.value.expiryDate = nil
    shared = SharedDefinition(definition)
  }
}

/// The parts of a record: what seldom changes, what few tasks have, and the history.
///
/// A record only references these parts, so the record is small.
extension TaskRecord {
  /// The part of a task that seldom changes.
  ///
  /// It changes when a restart removes the expiry date, or when an update changes options.
  struct Definition: Sendable {
    private(set) var id: TaskID
    let name: String
    var payload: StoredPayload
    // The flag is here because it uses space that the payload leaves free. If it followed the retry
    // limit, it would need another word.
    private var isRetriedAlways: Bool
    var usesBackoff: Bool
    var priority: TaskQueue.Priority
    var createdDate: Date
    let uniqueKey: String?
    var extras: Boxed<Extras>
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
      extras: Boxed<Extras>
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

  /// A definition that records share, so that moving a record copies only a reference to it.
  final class SharedDefinition: Sendable {
    let value: Definition

    init(_ value: Definition) { self.value = value }
  }

  /// The options that few tasks have.
  struct Extras: BoxedValue {
    var tags: Set<String> = []
    var timeLimit: Duration?
    var expiryDate: Date?
    var uniqueUntil: Date?
    var latestDate: Date?
    var queue = ""
    var memorySize = 0
    var prerequisites = Boxed<Prerequisites>()

    var isEmpty: Bool {
      tags.isEmpty && timeLimit == nil && expiryDate == nil && uniqueUntil == nil
        && latestDate == nil && queue.isEmpty && memorySize == 0 && prerequisites.isEmpty
    }
  }

  /// What a task waits for besides its date.
  struct Prerequisites: BoxedValue {
    var orderKey: String?
    /// The position among the tasks with the order key; 0 until a table assigns one.
    var orderNumber: UInt64 = 0
    var blocksOrderOnFailure = false
    var conditions: Set<TaskCondition> = []
    var dependencies = Boxed<TaskDependencies>()

    var isEmpty: Bool {
      orderKey == nil && !blocksOrderOnFailure && conditions.isEmpty && dependencies.isEmpty
    }
  }

  /// The history of a task, above all its failures.
  struct FailureState: BoxedValue {
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

/// The origin of the available date.
extension TaskRecord {
  /// The date by the queue's clock from which ``availableDate`` was counted; `nil` if a caller
  /// chose ``availableDate``.
  ///
  /// It is the date of the call that made the task available at once or after a delay, the date of
  /// the failure that a retry follows, or the date of the snooze. If it turns out to be in the
  /// future, the clock was ahead, and a rebase counts from the present date instead
  /// (``rebase(to:)``).
  ///
  /// If ``availableDate`` equals ``createdDate``, it counts from ``createdDate``, so most tasks
  /// need no further value. Set this property after ``availableDate``.
  public var countedFrom: Date? {
    get { explicitOrigin ?? (availableDate == createdDate ? createdDate : nil) }
    set { if newValue != countedFrom { failureState.value.countedFrom = newValue } }
  }

  /// The value of ``countedFrom``, unless it follows from ``createdDate``.
  package var explicitOrigin: Date? { failureState.present?.countedFrom }

  // MARK: In a file

  /// The origin that a file stores for a chosen date, which has none.
  static let noOrigin = Date.distantPast

  /// The value of ``countedFrom`` if the file has no such value.
  ///
  /// Earlier versions did not store ``countedFrom``, and used this rule.
  var usualOrigin: Date? {
    if state == .suspended { return nil }
    return availableDate <= createdDate ? createdDate : failedDate
  }

  /// Sets ``countedFrom`` from the value in the file.
  mutating func setOrigin(fromStored stored: Date?) {
    countedFrom = stored == Self.noOrigin ? nil : stored ?? usualOrigin
  }

  /// Returns what ``countedFrom`` would be if the task waited for another available date, given the
  /// value in the file.
  func origin(fromStored stored: Date?, ofAvailableDate date: Date) -> Date? {
    var record = self
    record.state = .waiting
    record.availableDate = date
    record.setOrigin(fromStored: stored)
    return record.countedFrom
  }
}
