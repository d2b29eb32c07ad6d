public import SystemFoundation

/// A task with its payload, options, state and history.
///
/// Stores store records, and look-ups and events return them. A record is small, because a queue
/// may have a million of them.
public struct TaskRecord: Sendable, Identifiable {
  var shared: SharedDefinition
  var failureState: Boxed<FailureState>
  // The order of the properties matters for the size of a record, here and below: a `Bool` that
  // follows an optional uses a byte that the optional leaves free.

  /// The date from which on the task may be performed; after a failure, the date of the retry.
  public var availableDate: Date
  /// When the task ended; `nil` if it has not ended.
  public var finishedDate: Date?
  /// The task's state: it waits, is being performed, or has ended.
  public var state: TaskState
  /// Whether the task is the holder of its unique key, or the holder's successor; `nil` if the task
  /// has no unique key, or has ended.
  ///
  /// It is also `nil` for an expired task whose key now belongs to a newer task, and for a new
  /// task: the store sets it.
  public var keyRole: UniqueKeyRole?

  /// Makes a record; stores call this with stored values.
  ///
  /// If `isPostponed` is `nil`, ``isPostponed`` is `true` if `retryCount` is not 0.
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
    metadata: [String: String] = [:],
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
    failedAttempt: FailedAttempt? = nil,
    earlierFailures: [TaskFailure] = [],
    parkedVersion: Int? = nil,
    claim: TaskClaim? = nil,
    command: StoredCommand? = nil,
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
            metadata: metadata,
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
        failedAttempt: failedAttempt,
        earlierFailures: Self.latestStorable(of: earlierFailures),
        parkedVersion: parkedVersion,
        claim: claim,
        command: command,
        isPostponed: isPostponed ?? (retryCount > 0),
        countedFrom: availableDate == createdDate && countedFrom == createdDate ? nil : countedFrom
      )
    )
    self.state = state
    self.keyRole = keyRole
    self.availableDate = availableDate
    self.finishedDate = finishedDate
  }

  /// Makes a new task with the default options, faster than the other initializer.
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

  /// The task's ID.
  public var id: TaskID { shared.value.id }
  /// The name under which the task's handler is registered.
  public var name: String { shared.value.name }
  /// The value that the task carries.
  public var payload: StoredPayload { shared.value.payload }
  /// The task's rank among the available tasks; the highest rank goes first.
  public var priority: TaskQueue.Priority { shared.value.priority }
  /// When the task was enqueued.
  public var createdDate: Date { shared.value.createdDate }
  /// How many times the task may be retried.
  public var maxRetries: RetryLimit { shared.value.maxRetries }
  /// Whether a retry waits for the queue's backoff, or is due at once.
  public var usesBackoff: Bool { shared.value.usesBackoff }
  /// The key that identifies duplicates among the tasks with the same name; `nil` if the task has
  /// none.
  ///
  /// ``keyRole`` says whether the task is the holder of this key.
  public var uniqueKey: String? { shared.value.uniqueKey }
  /// The date until which a new task with the same unique key is a duplicate of this task, even if
  /// this task has already succeeded (``TaskOptions/uniqueFor``).
  ///
  /// If the date is `nil`, a new task can be added as soon as this task has ended.
  public var uniqueUntil: Date? { shared.value.extras.present?.uniqueUntil }
  /// The latest date to which a new task with the same unique key can postpone this task
  /// (``TaskOptions/maxDelay``); `nil` if there is no such date.
  public var latestDate: Date? { shared.value.extras.present?.latestDate }
  /// The order key: tasks with the same key are performed one at a time, in the order of their
  /// insertion.
  ///
  /// It is `nil` if the task has none. Tasks with different names may have the same key.
  public var orderKey: String? { prerequisites?.orderKey }
  /// Whether later tasks with the same order key must wait if this task ends without success.
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
  /// The name of the task's queue (``TaskQueue/name``); empty for the queue `"default"`.
  ///
  /// Claims, look-ups, unique keys and order keys ignore the tasks of other queues.
  public var queue: String { shared.value.extras.present?.queue ?? "" }
  /// The size of the task's memory in bytes: its names, in UTF-8, and its values.
  ///
  /// A store ignores this size when a task is inserted, because the memory of a new task is empty.
  /// From then on, the store keeps it equal to the size of ``Persistence/memory(of:)``.
  public var memorySize: Int {
    get { shared.value.extras.present?.memorySize ?? 0 }
    set {
      guard newValue != memorySize else { return }
      var definition = shared.value
      definition.extras.value.memorySize = newValue
      shared = SharedDefinition(definition)
    }
  }
  /// Labels by which tasks can be found and cancelled.
  public var tags: Set<String> { shared.value.extras.present?.tags ?? [] }
  /// Text about the task for logs, traces and look-ups, such as a tenant or the ID of a trace
  /// (``TaskOptions/metadata``).
  ///
  /// A store does not encrypt it, even if it encrypts payloads.
  public var metadata: [String: String] { shared.value.extras.present?.metadata ?? [:] }
  /// The maximum duration of an attempt; `nil` for no limit.
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
  /// The text of the last attempt's error, cut to 4,096 bytes; `nil` if no attempt has failed.
  public var lastError: String? {
    get { failureState.present?.lastError }
    set { failureState.value.lastError = newValue }
  }
  /// When the last attempt failed; `nil` if no attempt has failed.
  public var failedDate: Date? {
    get { failureState.present?.failedDate }
    set { failureState.value.failedDate = newValue }
  }
  /// How the last attempt failed, how long it took, and who made it.
  ///
  /// It is `nil` if no attempt has failed, or if an earlier version of this library has stored the
  /// failure.
  public var failedAttempt: FailedAttempt? {
    get { failureState.present?.failedAttempt }
    set { failureState.value.failedAttempt = newValue }
  }
  /// Whether the last attempt has set ``availableDate``, for a retry or for the end of a snooze.
  ///
  /// A store sets this property to `true` for
  /// ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)``, and to `false` for
  /// ``TaskChange/restart(_:availableDate:forgets:)``,
  /// ``TaskChange/reschedule(_:availableDate:countedFrom:)`` and
  /// ``TaskChange/suspend(_:until:awaiting:countedFrom:)``. The start of the next attempt does not
  /// change it, and neither does ``TaskChange/rebase(_:)``.
  public var isPostponed: Bool {
    get { failureState.present?.isPostponed ?? false }
    set { failureState.value.isPostponed = newValue }
  }
  /// The latest four failures before the last one, the oldest first; stores store them unchanged.
  ///
  /// ``failures`` also includes the last failure.
  public var earlierFailures: [TaskFailure] {
    get { failureState.present?.earlierFailures ?? [] }
    set { failureState.value.earlierFailures = Self.latestStorable(of: newValue) }
  }

  /// If the task is parked, the greatest payload version that its handler could decode in the
  /// process that parked the task; `nil` if this is not known, or if the task is not parked.
  ///
  /// A queue that can decode a greater version tries the task again
  /// (``BroadChange/unpark(name:queue:below:)``).
  public var parkedVersion: Int? {
    get { state == .parked ? failureState.present?.parkedVersion : nil }
    set { failureState.value.parkedVersion = newValue }
  }

  /// Who performs the task, if it is running in a store that several queues share.
  ///
  /// A store that one queue uses need not know it.
  public var claim: TaskClaim? {
    get { state == .running ? failureState.present?.claim : nil }
    set { failureState.value.claim = newValue }
  }

  /// The command that is carried out when the current attempt ends, or instead of the next one
  /// (``TaskChange/command(_:from:to:)``); `nil` if there is none.
  public var command: StoredCommand? {
    get { failureState.present?.command }
    set { if newValue != command { failureState.value.command = newValue } }
  }

  /// Whether any property of the ``FailureState`` differs from its default.
  var hasFailureState: Bool { !failureState.isEmpty }
  /// Whether any property of the ``Extras`` differs from its default.
  var hasExtras: Bool { !shared.value.extras.isEmpty }

  /// Whether the task may wait for something besides its date: order, conditions or dependencies.
  var hasPrerequisites: Bool {
    guard let extras = shared.value.extras.present else { return false }
    return !extras.prerequisites.isEmpty
  }

  /// Clears the task's retries, interruptions and failures, as if it were new.
  mutating func forgetFailures() { failureState.value = FailureState() }

  /// Returns whether the task has expired at this date, so that no attempt may start.
  func hasExpired(by date: Date) -> Bool { expiryDate.map { $0 <= date } ?? false }

  /// A number, assigned by the ``TaskTable``, by which tasks with the same order key are ordered.
  var orderNumber: UInt64 { prerequisites?.orderNumber ?? 0 }

  /// The dependencies; `nil` if there are none.
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

/// The types of the objects that a record references, so that the record itself is small.
extension TaskRecord {
  /// The properties of a task that seldom change.
  struct Definition: Sendable {
    private(set) var id: TaskID
    let name: String
    var payload: StoredPayload
    // `isRetriedAlways` is here because it uses a byte that the payload leaves free. After
    // `retryLimit`, it would need another word.
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

  /// A reference to a definition, so that copying a record does not copy the definition.
  final class SharedDefinition: Sendable {
    let value: Definition

    init(_ value: Definition) { self.value = value }
  }

  /// The options that few tasks have.
  struct Extras: BoxedValue {
    var tags: Set<String> = []
    var metadata: [String: String] = [:]
    var timeLimit: Duration?
    var expiryDate: Date?
    var uniqueUntil: Date?
    var latestDate: Date?
    var queue = ""
    var memorySize = 0
    var prerequisites = Boxed<Prerequisites>()

    var isEmpty: Bool {
      tags.isEmpty && metadata.isEmpty && timeLimit == nil && expiryDate == nil
        && uniqueUntil == nil && latestDate == nil && queue.isEmpty && memorySize == 0
        && prerequisites.isEmpty
    }
  }

  /// What a task waits for besides its date.
  struct Prerequisites: BoxedValue {
    var orderKey: String?
    /// The number by which tasks with the same order key are ordered; 0 until a ``TaskTable``
    /// assigns it.
    var orderNumber: UInt64 = 0
    var blocksOrderOnFailure = false
    var conditions: Set<TaskCondition> = []
    var dependencies = Boxed<TaskDependencies>()

    var isEmpty: Bool {
      orderKey == nil && !blocksOrderOnFailure && conditions.isEmpty && dependencies.isEmpty
    }
  }

  /// The retries, interruptions and failures of a task.
  struct FailureState: BoxedValue {
    var retryCount = 0
    var interruptionCount = 0
    var lastError: String?
    var failedDate: Date?
    var failedAttempt: FailedAttempt?
    var earlierFailures: [TaskFailure] = []
    /// It has no meaning unless the task is parked.
    var parkedVersion: Int?
    /// It has no meaning unless the task is running.
    var claim: TaskClaim?
    var command: StoredCommand?
    var isPostponed = false
    var countedFrom: Date?

    var isEmpty: Bool {
      retryCount == 0 && interruptionCount == 0 && lastError == nil && failedDate == nil
        && failedAttempt == nil && earlierFailures.isEmpty && parkedVersion == nil && claim == nil
        && command == nil && !isPostponed && countedFrom == nil
    }

    var lastFailure: TaskFailure? {
      guard let lastError, let failedDate else { return nil }
      return TaskFailure(reason: lastError, date: failedDate, attempt: failedAttempt)
    }
  }
}

extension TaskRecord {
  /// The date of the queue's clock from which ``availableDate`` was calculated; `nil` if a caller
  /// chose ``availableDate``.
  ///
  /// It is the date of the call that made the task available at once or after a delay, the date of
  /// the failure that a retry follows, or the date of a snooze. If this date is later than the
  /// current date, the clock was ahead, and ``rebase(to:)`` corrects ``availableDate``.
  ///
  /// If ``availableDate`` equals ``createdDate``, this property is ``createdDate`` by default, so
  /// most tasks need not store it. Set this property after ``availableDate``.
  public var countedFrom: Date? {
    get { explicitOrigin ?? (availableDate == createdDate ? createdDate : nil) }
    set { if newValue != countedFrom { failureState.value.countedFrom = newValue } }
  }

  /// The stored value of ``countedFrom``; `nil` if it is the default, or if a caller chose
  /// ``availableDate``.
  package var explicitOrigin: Date? { failureState.present?.countedFrom }

  // MARK: In a file

  /// The date that a file has for ``countedFrom`` if a caller chose ``availableDate``.
  static let noOrigin = Date.distantPast

  /// The value of ``countedFrom`` if the file has no date for it.
  ///
  /// Earlier versions did not store ``countedFrom``, and used this rule.
  var usualOrigin: Date? {
    if state == .suspended { return nil }
    return availableDate <= createdDate ? createdDate : failedDate
  }

  /// Sets ``countedFrom`` from the date that a file has for it; `nil` if the file has none.
  mutating func setOrigin(fromStored stored: Date?) {
    countedFrom = stored == Self.noOrigin ? nil : stored ?? usualOrigin
  }

  /// Returns what ``countedFrom`` would be if the task waited until `date`, and a file had the date
  /// `stored` for it.
  func origin(fromStored stored: Date?, ofAvailableDate date: Date) -> Date? {
    var record = self
    record.state = .waiting
    record.availableDate = date
    record.setOrigin(fromStored: stored)
    return record.countedFrom
  }
}
