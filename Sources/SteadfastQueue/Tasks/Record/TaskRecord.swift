#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A task as a store keeps it, and as look-ups and events show it.
///
/// A record is small, because a queue may hold a million of them.
public struct TaskRecord: Sendable, Identifiable {
  var shared: SharedDefinition
  var failureState: Rare<FailureState>
  // A flag after an optional uses space that the optional leaves free. So the order matters, here
  // and below.

  /// The date from which the task may be performed; after a failure, the date of the retry.
  public var availableDate: Date
  /// When the task ended; `nil` while it has not.
  public var finishedDate: Date?
  /// Where the task is in its life.
  public var state: TaskState
  /// What the task is for its unique key; `nil` if it has no key, or has ended.
  ///
  /// It is also `nil` for a task that has expired, and whose key has gone to a new one. A new task
  /// has none: the store sets it.
  public var keyRole: UniqueKeyRole?

  /// Makes a record, as a store does from what it has stored.
  ///
  /// If `isPostponed` is `nil`, it is true for a task that has retries.
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
        extras: Rare(
          Extras(
            tags: tags,
            timeLimit: timeLimit,
            expiryDate: expiryDate,
            uniqueUntil: uniqueUntil,
            latestDate: latestDate,
            queue: queue,
            memorySize: memorySize,
            prerequisites: Rare(
              Prerequisites(
                orderKey: orderKey,
                blocksOrderOnFailure: blocksOrderOnFailure,
                conditions: conditions,
                dependencies: dependencies.map { Rare($0) } ?? Rare()
              )
            )
          )
        )
      )
    )
    failureState = Rare(
      FailureState(
        retryCount: retryCount,
        interruptionCount: interruptionCount,
        lastError: lastError,
        failedDate: failedDate,
        earlierFailures: Self.kept(earlierFailures),
        isPostponed: isPostponed ?? (retryCount > 0),
        countedFrom: availableDate == createdDate && countedFrom == createdDate ? nil : countedFrom
      )
    )
    self.state = state
    self.keyRole = keyRole
    self.availableDate = availableDate
    self.finishedDate = finishedDate
  }

  /// Makes a new task for which nothing is chosen, sooner than the other initializer does.
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
        extras: Rare()
      )
    )
    failureState = Rare()
    state = .waiting
    keyRole = nil
    availableDate = now
    finishedDate = nil
  }

  /// The task's identity.
  public var id: TaskID { shared.value.id }
  /// The name under which its handler is registered.
  public var name: String { shared.value.name }
  /// What the task carries.
  public var payload: StoredPayload { shared.value.payload }
  /// Its rank among the available tasks.
  public var priority: TaskQueue.Priority { shared.value.priority }
  /// When it was enqueued.
  public var createdDate: Date { shared.value.createdDate }
  /// How often it may be retried.
  public var maxRetries: RetryLimit { shared.value.maxRetries }
  /// Whether a failure is followed by the queue's backoff, or by another attempt at once.
  public var usesBackoff: Bool { shared.value.usesBackoff }
  /// The key by which new tasks of the same name find this one; `nil` if it has none.
  ///
  /// ``keyRole`` says what the task is for it.
  public var uniqueKey: String? { shared.value.uniqueKey }
  /// The date until which a new task with the key counts as this one if it has succeeded.
  ///
  /// It is `nil` if a new task is added as soon as this one has ended (``TaskOptions/uniqueFor``).
  public var uniqueUntil: Date? { shared.value.extras.present?.uniqueUntil }
  /// The date beyond which no replacement postpones the task; `nil` if there is none.
  public var latestDate: Date? { shared.value.extras.present?.latestDate }
  /// The key of the tasks that are performed one at a time, in the order of their insertion.
  ///
  /// It is `nil` for a task that waits for no other one. Tasks with other names may have the same
  /// key.
  public var orderKey: String? { prerequisites?.orderKey }
  /// Whether later tasks with the order key wait after this one has ended without success.
  ///
  /// They wait until it is restarted or removed.
  public var blocksOrderOnFailure: Bool { prerequisites?.blocksOrderOnFailure ?? false }
  /// What must hold when an attempt begins.
  public var conditions: Set<TaskCondition> { prerequisites?.conditions ?? [] }
  /// The tasks that it waits for, and what has become of them.
  ///
  /// A store keeps this in step with what happens to those tasks; <doc:WritingAStore> says how.
  public var dependencies: TaskDependencies {
    get { prerequisites?.dependencies.value ?? TaskDependencies() }
    set {
      var definition = shared.value
      definition.extras.value.prerequisites.value.dependencies.value = newValue
      shared = SharedDefinition(definition)
    }
  }
  /// The queue of a ``TaskQueueGroup`` in which the task is; empty if it is in none.
  ///
  /// To a claim, a look-up, its unique key and its order key, the tasks of other queues are not
  /// there.
  public var queue: String { shared.value.extras.present?.queue ?? "" }
  /// How much the task remembers: the number of bytes of the names, in UTF-8, and of the values.
  ///
  /// A new task remembers nothing, whatever its record says. A store keeps this in step with
  /// ``Persistence/memory(of:)``.
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
  /// How long one attempt may take; `nil` for any time.
  public var timeLimit: Duration? { shared.value.extras.present?.timeLimit }
  /// The date from which no attempt begins; `nil` if none.
  public var expiryDate: Date? { shared.value.extras.present?.expiryDate }

  /// How many attempts have failed.
  public var retryCount: Int {
    get { failureState.present?.retryCount ?? 0 }
    set { failureState.value.retryCount = newValue }
  }
  /// How often a process ended while it performed the task, or had claimed it to do so.
  public var interruptionCount: Int {
    get { failureState.present?.interruptionCount ?? 0 }
    set { failureState.value.interruptionCount = newValue }
  }
  /// The text of the last error, cut to 4,096 bytes; `nil` if none.
  public var lastError: String? {
    get { failureState.present?.lastError }
    set { failureState.value.lastError = newValue }
  }
  /// When the last attempt failed; `nil` if none has.
  public var failedDate: Date? {
    get { failureState.present?.failedDate }
    set { failureState.value.failedDate = newValue }
  }
  /// Whether ``availableDate`` was set by the last attempt, and was not chosen.
  ///
  /// The date is then that of a retry, or the end of a snooze.
  ///
  /// A store sets this on ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)``. It
  /// clears it on ``TaskChange/restart(_:availableDate:forgets:)``,
  /// ``TaskChange/reschedule(_:availableDate:countedFrom:)`` and
  /// ``TaskChange/suspend(_:until:awaiting:countedFrom:)``.
  /// Nothing else changes it: neither the next attempt, nor a clock that goes back.
  public var isPostponed: Bool {
    get { failureState.present?.isPostponed ?? false }
    set { failureState.value.isPostponed = newValue }
  }
  /// The failures before the last one, the oldest first; stores keep them as they are.
  ///
  /// There are at most four: of more, the last four count. ``failures`` includes the last one, too.
  public var earlierFailures: [TaskFailure] {
    get { failureState.present?.earlierFailures ?? [] }
    set { failureState.value.earlierFailures = Self.kept(newValue) }
  }

  /// Whether anything has gone wrong with the task.
  var hasFailureState: Bool { !failureState.isEmpty }
  /// Whether it has any of the options that few tasks have.
  var hasExtras: Bool { !shared.value.extras.isEmpty }

  /// Whether it may have to wait for something besides its date.
  var hasPrerequisites: Bool {
    guard let extras = shared.value.extras.present else { return false }
    return !extras.prerequisites.isEmpty
  }

  /// Clears what has gone wrong with the task, as if it were new.
  mutating func forgetFailures() { failureState.value = FailureState() }

  /// Returns whether the task has expired by this date, so that no attempt begins.
  func hasExpired(by date: Date) -> Bool { expiryDate.map { $0 <= date } ?? false }

  /// The place among the tasks with the order key, which the table gives.
  var orderNumber: UInt64 { prerequisites?.orderNumber ?? 0 }

  /// The dependencies; `nil` if there are none.
  ///
  /// Reading them makes no empty value.
  var presentDependencies: TaskDependencies? { prerequisites?.dependencies.present }

  var prerequisites: Prerequisites? { shared.value.extras.present?.prerequisites.present }

  mutating func setOrderNumber(_ number: UInt64) {
    var definition = shared.value
    definition.extras.value.prerequisites.value.orderNumber = number
    shared = SharedDefinition(definition)
  }

  mutating func dropExpiry() {
    var definition = shared.value
    definition.extras.value.expiryDate = nil
    shared = SharedDefinition(definition)
  }
}

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
    var blocksOrderOnFailure = false
    var conditions: Set<TaskCondition> = []
    var dependencies = Rare<TaskDependencies>()

    var isEmpty: Bool {
      orderKey == nil && !blocksOrderOnFailure && conditions.isEmpty && dependencies.isEmpty
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

/// From which date the available date of a task was counted.
extension TaskRecord {
  /// The date by the queue's clock from which ``availableDate`` was counted; `nil` if that date was
  /// chosen.
  ///
  /// It is the date of the call that made the task available at once or after a delay, of the
  /// failure that a retry follows, or of the snooze. If it turns out to be a date to come, the
  /// clock was ahead, and a rebase counts from the present date instead (``rebase(to:)``).
  ///
  /// A date that is equal to ``createdDate`` counts as counted from it. So most tasks need no
  /// further value. Set this after ``availableDate``.
  public var countedFrom: Date? {
    get { explicitOrigin ?? (availableDate == createdDate ? createdDate : nil) }
    set { if newValue != countedFrom { failureState.value.countedFrom = newValue } }
  }

  /// What ``countedFrom`` is, unless that follows from ``createdDate``.
  package var explicitOrigin: Date? { failureState.present?.countedFrom }

  // MARK: In a file

  /// What stands in a file for the origin of a date that was chosen.
  static let noOrigin = Date.distantPast

  /// What ``countedFrom`` is if the file does not say so.
  ///
  /// Earlier versions did not store it, and went by this.
  var usualOrigin: Date? {
    if state == .suspended { return nil }
    return availableDate <= createdDate ? createdDate : failedDate
  }

  /// Sets ``countedFrom``, given what the file says.
  mutating func setOrigin(_ stored: Date?) {
    countedFrom = stored == Self.noOrigin ? nil : stored ?? usualOrigin
  }

  /// Returns from which date another available date is counted, given what the file says.
  func origin(_ stored: Date?, of date: Date) -> Date? {
    var record = self
    record.state = .waiting
    record.availableDate = date
    record.setOrigin(stored)
    return record.countedFrom
  }
}
