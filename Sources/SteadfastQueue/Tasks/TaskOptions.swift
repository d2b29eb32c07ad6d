public import SystemFoundation

/// The options of a new task: everything except its payload and its unique key.
///
/// ```swift
/// let options = TaskOptions(priority: .high)
/// try await queue.enqueue(contentsOf: photos, options: options)
/// ```
///
/// Each option has the value from the first of these sources that sets it:
/// 1. a labelled argument of the call, as in `enqueue(photo, priority: .high)`;
/// 2. the call's `options`;
/// 3. the payload's ``TaskPayload/options``;
/// 4. the queue's ``TaskQueueConfiguration/taskDefaults``;
/// 5. the default of the property, as given below.
///
/// ``availableDate`` and ``delay`` count as one option: a delay overrides a date from a later
/// source in this list, and a date overrides a delay. Tags, metadata, conditions and dependencies
/// accumulate: a task has those from all sources.
public struct TaskOptions: Sendable, Equatable {
  // Most calls set no option. A `TaskOptions` is then one word, and passing it on costs nothing.
  var choices: Boxed<Choices>

  /// Makes options; an argument that you leave out is not set.
  public init(
    availableDate: Date? = nil,
    delay: Duration? = nil,
    expiryDate: Date? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    priority: TaskQueue.Priority? = nil,
    orderKey: String? = nil,
    blocksOrderOnFailure: Bool? = nil,
    dependencies: Set<TaskID> = [],
    dependencyRule: DependencyRule? = nil,
    onDuplicate: UniquePolicy? = nil,
    uniqueFor: Duration? = nil,
    maxDelay: Duration? = nil,
    conditions: Set<TaskCondition> = [],
    tags: Set<String> = [],
    metadata: [String: String] = [:]
  ) {
    // Most calls set no option. For such a call, `Choices` must not be allocated.
    let choosesDate = availableDate != nil || delay != nil || maxDelay != nil
    let choosesRetries = maxRetries != nil || usesBackoff != nil || timeLimit != nil
    let choosesKey = onDuplicate != nil || uniqueFor != nil || orderKey != nil
    guard
      choosesDate || choosesRetries || choosesKey || priority != nil || expiryDate != nil
        || blocksOrderOnFailure != nil || dependencyRule != nil || !tags.isEmpty
        || !metadata.isEmpty || !conditions.isEmpty || !dependencies.isEmpty
    else {
      choices = Boxed()
      return
    }
    choices = Boxed(
      Choices(
        availableDate: availableDate,
        delay: delay,
        expiryDate: expiryDate,
        maxRetries: maxRetries,
        usesBackoff: usesBackoff,
        timeLimit: timeLimit,
        priority: priority,
        orderKey: orderKey,
        blocksOrderOnFailure: blocksOrderOnFailure,
        dependencies: dependencies,
        dependencyRule: dependencyRule,
        onDuplicate: onDuplicate,
        uniqueFor: uniqueFor,
        maxDelay: maxDelay,
        conditions: conditions,
        tags: tags,
        metadata: metadata
      )
    )
  }

  /// The date from which on the task may be performed; by default now.
  public var availableDate: Date? {
    get { choices.present?.availableDate }
    set { choices.value.availableDate = newValue }
  }

  /// The time from enqueueing until the task may be performed; by default none.
  ///
  /// Set a delay or an ``availableDate``, not both. A delay must not be negative, and is at most
  /// 100,000,000,000 seconds.
  public var delay: Duration? {
    get { choices.present?.delay }
    set { choices.value.delay = newValue }
  }

  /// The date from which no attempt starts; by default none.
  ///
  /// A task that has not ended by then is abandoned when it would be performed next, or when its
  /// next retry would come after that date. A task whose name has no handler is not abandoned
  /// before a handler is registered.
  public var expiryDate: Date? {
    get { choices.present?.expiryDate }
    set { choices.value.expiryDate = newValue }
  }

  /// How many times a failed task is retried; by default 10 times, so 11 attempts in all.
  public var maxRetries: RetryLimit? {
    get { choices.present?.maxRetries }
    set { choices.value.maxRetries = newValue }
  }

  /// Whether a retry waits for the queue's backoff, or is due at once; by default it waits.
  public var usesBackoff: Bool? {
    get { choices.present?.usesBackoff }
    set { choices.value.usesBackoff = newValue }
  }

  /// The maximum duration of an attempt; by default without limit.
  ///
  /// When this time has passed, the attempt's Swift task is cancelled. The attempt has then failed
  /// with a `TimeoutError`, whatever it returns or throws.
  public var timeLimit: Duration? {
    get { choices.present?.timeLimit }
    set { choices.value.timeLimit = newValue }
  }

  /// The task's rank among the available tasks; by default ``TaskQueue/Priority/normal``.
  public var priority: TaskQueue.Priority? {
    get { choices.present?.priority }
    set { choices.value.priority = newValue }
  }

  /// The order key: tasks with the same key are performed one at a time, in the order in which they
  /// were enqueued; by default none.
  ///
  /// Tasks of all types with the same key wait for one another, whatever their priorities and
  /// dates. The later tasks wait until the first task has ended, even while it waits for its date
  /// or for a retry, and while it is parked or paused. Tasks with other keys, and tasks without a
  /// key, do not wait for it.
  ///
  /// When the first task has ended, with or without success, the next task may be performed. But if
  /// the first task has ``blocksOrderOnFailure`` and ends without success, the later tasks wait. A
  /// task that is retried keeps its position.
  public var orderKey: String? {
    get { choices.present?.orderKey }
    set { choices.value.orderKey = newValue }
  }

  /// Whether later tasks with the same order key wait if this task is abandoned or cancelled; by
  /// default they do not.
  ///
  /// If they wait, this task is retained, whatever the queue's ``Retention``. They wait until this
  /// task has succeeded after it was retried (``TaskQueue/retry(_:forgetting:)``), or until it is
  /// removed (``TaskQueue/remove(_:)``).
  public var blocksOrderOnFailure: Bool? {
    get { choices.present?.blocksOrderOnFailure }
    set { choices.value.blocksOrderOnFailure = newValue }
  }

  /// The tasks that must have ended before this task is performed; by default none.
  ///
  /// Each of these tasks must be in the store, or be added in the same call
  /// (``TaskQueue/enqueue(together:)``). It must not have ended without success. A task that has
  /// succeeded is in the store only while it is retained. There can be at most 10,000 tasks. A task
  /// that waits for others can't have ``UniquePolicy/replace``.
  public var dependencies: Set<TaskID> {
    get { choices.present?.dependencies ?? [] }
    set { choices.value.dependencies = newValue }
  }

  /// Whether the tasks that this task waits for must succeed, or only have to end; by default
  /// ``DependencyRule/allSucceeded``.
  public var dependencyRule: DependencyRule? {
    get { choices.present?.dependencyRule }
    set { choices.value.dependencyRule = newValue }
  }

  /// What to do if another task has the same unique key; by default ``UniquePolicy/keep``.
  public var onDuplicate: UniquePolicy? {
    get { choices.present?.onDuplicate }
    set { choices.value.onDuplicate = newValue }
  }

  /// How long after it was enqueued this task prevents new tasks with the same unique key; by
  /// default until this task has ended.
  ///
  /// If the task succeeds earlier, it is retained for the rest of this time, and a new task with
  /// the same key counts as a duplicate: with ``UniquePolicy/keep`` and ``UniquePolicy/join``, the
  /// call returns the task that has succeeded. A task that was abandoned or cancelled prevents no
  /// new task.
  public var uniqueFor: Duration? {
    get { choices.present?.uniqueFor }
    set { choices.value.uniqueFor = newValue }
  }

  /// How long after it was enqueued this task may be postponed by later tasks with the same unique
  /// key; by default without limit.
  ///
  /// Use this option with ``UniquePolicy/replace`` and a ``delay``: each call postpones the task
  /// again by the delay. The limit that the first call sets counts.
  public var maxDelay: Duration? {
    get { choices.present?.maxDelay }
    set { choices.value.maxDelay = newValue }
  }

  /// The conditions that must hold when an attempt starts, such as ``TaskCondition/network``; by
  /// default none.
  ///
  /// If a condition stops holding during an attempt, the attempt continues, unless the condition's
  /// monitor was registered with `interruptsTasks`.
  public var conditions: Set<TaskCondition> {
    get { choices.present?.conditions ?? [] }
    set { choices.value.conditions = newValue }
  }

  /// Labels by which tasks can be found and cancelled; by default none.
  ///
  /// A label must not be empty or contain NUL (U+0000).
  public var tags: Set<String> {
    get { choices.present?.tags ?? [] }
    set { choices.value.tags = newValue }
  }

  /// Text about the task for logs, traces and look-ups, such as a tenant or the ID of a trace; by
  /// default none.
  ///
  /// There can be at most 64 keys. A key must not be empty, and neither a key nor a value may
  /// contain NUL (U+0000). All keys and values together have at most 4,096 bytes of UTF-8.
  ///
  /// If several sources set the same key, the value from the first of them counts. A task that a
  /// handler enqueues through its ``TaskContext`` inherits the metadata of the handler's task: the
  /// values that the call and the payload set override inherited ones, which override the queue's
  /// ``TaskQueueConfiguration/taskDefaults``. Each occurrence of a schedule has the metadata of the
  /// schedule's options.
  ///
  /// Put no secrets into metadata. A store never logs it, but it is not encrypted, even if payloads
  /// are (<doc:SealingPayloads>).
  public var metadata: [String: String] {
    get { choices.present?.metadata ?? [:] }
    set { choices.value.metadata = newValue }
  }

  /// Sets each key of the metadata that is not set to its value in `others`.
  mutating func addMissingMetadata(_ others: [String: String]) {
    metadata = metadata.isEmpty ? others : metadata.merging(others) { own, _ in own }
  }

  /// Whether no option is set.
  var isEmpty: Bool { choices.isEmpty }

  /// The options; `nil` or empty if an option is not set.
  struct Choices: BoxedValue, Equatable {
    var availableDate: Date?
    var delay: Duration?
    var expiryDate: Date?
    var maxRetries: RetryLimit?
    var usesBackoff: Bool?
    var timeLimit: Duration?
    var priority: TaskQueue.Priority?
    var orderKey: String?
    var blocksOrderOnFailure: Bool?
    var dependencies: Set<TaskID> = []
    var dependencyRule: DependencyRule?
    var onDuplicate: UniquePolicy?
    var uniqueFor: Duration?
    var maxDelay: Duration?
    var conditions: Set<TaskCondition> = []
    var tags: Set<String> = []
    var metadata: [String: String] = [:]

    var isEmpty: Bool {
      availableDate == nil && delay == nil && maxRetries == nil && usesBackoff == nil
        && priority == nil && onDuplicate == nil && uniqueFor == nil && maxDelay == nil
        && orderKey == nil && blocksOrderOnFailure == nil && conditions.isEmpty
        && dependencies.isEmpty && dependencyRule == nil
        && timeLimit == nil && expiryDate == nil && tags.isEmpty && metadata.isEmpty
    }

    mutating func setMissingOptions(from others: Choices) {
      if availableDate == nil, delay == nil {
        availableDate = others.availableDate
        delay = others.delay
      }
      expiryDate = expiryDate ?? others.expiryDate
      maxRetries = maxRetries ?? others.maxRetries
      usesBackoff = usesBackoff ?? others.usesBackoff
      timeLimit = timeLimit ?? others.timeLimit
      priority = priority ?? others.priority
      orderKey = orderKey ?? others.orderKey
      blocksOrderOnFailure = blocksOrderOnFailure ?? others.blocksOrderOnFailure
      dependencies.formUnion(others.dependencies)
      dependencyRule = dependencyRule ?? others.dependencyRule
      onDuplicate = onDuplicate ?? others.onDuplicate
      uniqueFor = uniqueFor ?? others.uniqueFor
      maxDelay = maxDelay ?? others.maxDelay
      conditions.formUnion(others.conditions)
      tags.formUnion(others.tags)
      metadata.merge(others.metadata) { own, _ in own }
    }
  }
}

extension TaskOptions {
  /// Sets each option that is not set to its value in `others`; tags, metadata, conditions and
  /// dependencies are added.
  package mutating func setMissingOptions(from others: TaskOptions) {
    guard !others.choices.isEmpty else { return }
    guard !choices.isEmpty else { return choices = others.choices }
    choices.value.setMissingOptions(from: others.choices.value)
  }
}

extension TaskQueue {
  /// The rank of a task among the available tasks: a task with a higher rank always goes first.
  ///
  /// A task waits as long as tasks with a higher priority are available. Any integer is a priority.
  public struct Priority: RawRepresentable, Hashable, Comparable, Sendable,
    ExpressibleByIntegerLiteral, CustomStringConvertible
  {
    /// The rank; tasks with a higher rank go first.
    public let rawValue: Int

    /// Makes a priority from its rank.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Makes a priority from its rank.
    public init(integerLiteral value: Int) { self.init(rawValue: value) }

    /// A priority below ``normal``: rank −10.
    public static let low = Priority(rawValue: -10)
    /// The default: rank 0.
    public static let normal = Priority(rawValue: 0)
    /// A priority above ``normal``: rank 10.
    public static let high = Priority(rawValue: 10)

    /// The rank.
    public var description: String { "\(rawValue)" }

    /// Returns whether the left priority goes after the right one.
    public static func < (left: Priority, right: Priority) -> Bool {
      left.rawValue < right.rawValue
    }
  }
}

/// How many times a failed task is retried.
///
/// An integer literal is enough: `maxRetries: 3` allows 3 retries, so 4 attempts in all.
public enum RetryLimit: Sendable, Hashable, ExpressibleByIntegerLiteral {
  /// At most this many retries after the first attempt. The number must not be negative.
  case atMost(Int)
  /// Any number of retries, until the task succeeds, expires or is abandoned by its handler.
  case alwaysRetry

  /// Makes the limit ``atMost(_:)``.
  public init(integerLiteral value: Int) { self = .atMost(value) }

  /// Returns whether the retry with this number, counted from 1, is allowed.
  func allows(retryCount: Int) -> Bool {
    switch self {
    case .atMost(let limit): retryCount <= limit
    case .alwaysRetry: true
    }
  }
}

extension RetryLimit: CustomStringConvertible {
  /// The limit as text, as in `at most 3`, or `always`.
  public var description: String {
    switch self {
    case .atMost(let limit): "at most \(limit)"
    case .alwaysRetry: "always"
    }
  }
}

/// What to do with a new task if another task with the same name has the same unique key.
///
/// Of the tasks with one name and one key, at most one is the *holder*: it waits, or is being
/// performed. At most one other task is its *successor*, which waits until the holder has ended. A
/// task that has ended, and a waiting task whose expiry date has passed, do not prevent a new task.
///
/// With ``keep``, ``replace`` and ``join``, the call always returns a task. ``EnqueuedTask/isNew``
/// says whether that task was added by the call.
@nonexhaustive
public enum UniquePolicy: Sendable, Hashable {
  /// Returns the waiting task, and adds no task.
  ///
  /// If the holder is being performed, it may already have read data that has changed since. So the
  /// new task is added as the holder's successor. If the holder already has a successor, the call
  /// returns the successor, and adds no task.
  case keep
  /// Gives the waiting task the payload, the options and the date of the new task.
  ///
  /// The waiting task keeps its ID, its order key and its retries. A paused task stays paused; a
  /// parked task waits again. If the holder is being performed, its successor gets the payload, the
  /// options and the date of the new task; if there is no successor, the new task is added as one.
  ///
  /// If the new task is available at once, so is the waiting task, which keeps its position if it
  /// was already available. A later date postpones the waiting task (a *debounce*), but not beyond
  /// ``TaskOptions/maxDelay``. A task that waits for a retry is not performed before the retry's
  /// date.
  case replace
  /// Throws an error with the code ``TaskQueueError/Code/duplicate``.
  case reject
  /// Returns the holder, which waits or is being performed, and adds no task.
  ///
  /// In this way, several callers share one attempt.
  case join
}

/// Whether a task is the holder of its unique key, or the holder's successor.
public enum UniqueKeyRole: String, Sendable, Hashable, CaseIterable {
  /// The task that is performed next, or is being performed.
  case holder
  /// The task that waits until the holder has ended.
  case successor
}

extension TaskRecord {
  /// Returns whether another task has the same queue, name and unique key.
  ///
  /// Two strings are the same only if their UTF-8 bytes are, although Swift's `==` considers some
  /// other strings equal, too. The result is `false` for tasks without a unique key.
  public func isTwin(of other: TaskRecord) -> Bool {
    guard let uniqueKey, let otherKey = other.uniqueKey else { return false }
    return uniqueKey.isExactly(otherKey) && name.isExactly(other.name)
      && queue.isExactly(other.queue)
  }
}

/// Changes to a task's options: each property that is not `nil` replaces the task's.
public struct TaskUpdate: Sendable {
  /// The new payload of the task.
  public var payload: StoredPayload?
  /// The task's rank among the available tasks.
  public var priority: TaskQueue.Priority?
  /// How many times the task may be retried.
  public var maxRetries: RetryLimit?
  /// Whether a retry waits for the queue's backoff, or is due at once.
  public var usesBackoff: Bool?
  /// The maximum duration of an attempt.
  public var timeLimit: Duration?
  /// The date from which no attempt starts.
  public var expiryDate: Date?
  /// The labels by which the task can be found; they replace all previous labels.
  public var tags: Set<String>?
  /// The text about the task; it replaces all previous metadata.
  public var metadata: [String: String]?

  /// Makes an update; an argument that you leave out changes nothing.
  public init(
    payload: StoredPayload? = nil,
    priority: TaskQueue.Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil,
    metadata: [String: String]? = nil
  ) {
    self.payload = payload
    self.priority = priority
    self.maxRetries = maxRetries
    self.usesBackoff = usesBackoff
    self.timeLimit = timeLimit
    self.expiryDate = expiryDate
    self.tags = tags
    self.metadata = metadata
  }

  /// Returns the same update with another payload.
  func replacing(payload: StoredPayload) -> TaskUpdate {
    var update = self
    update.payload = payload
    return update
  }

  /// Throws if a value of the update is invalid.
  func check(_ checker: ValueChecker) throws(TaskQueueError) {
    if let maxRetries { try TaskQueueError.check(maxRetries, "maxRetries") }
    try checker.check(timeLimit: timeLimit, "timeLimit")
    try checker.check(expiryDate, "expiryDate")
    if let tags { try checker.check(strings: tags, "tags") }
    if let metadata { try TaskQueueError.check(metadata: metadata, "metadata") }
  }

  /// Returns the approximate number of bytes by which the update makes the task longer in a file.
  func addedByteCount(to record: TaskRecord) -> Int {
    func size(_ payload: StoredPayload) -> Int { (try? payload.bytes().count) ?? 0 }
    func size(_ tags: Set<String>) -> Int { tags.reduce(0) { $0 + $1.utf8.count + 3 } }
    func size(_ metadata: [String: String]) -> Int {
      metadata.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count + 6 }
    }
    return (payload.map { size($0) - size(record.payload) } ?? 0)
      + (tags.map { size($0) - size(record.tags) } ?? 0)
      + (metadata.map { size($0) - size(record.metadata) } ?? 0)
  }
}

extension TaskOptions {
  /// Throws if an option is invalid, or contradicts another option.
  ///
  /// - Parameter path: the prefix of an option's name in an error, as in `taskDefaults.`.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` that
  ///   names the option.
  package func check(path: String) throws(TaskQueueError) {
    guard let choices = choices.present else { return }
    if let delay = choices.delay {
      guard choices.availableDate == nil else {
        throw TaskQueueError(
          .invalidArgument,
          "\(path)delay and \(path)availableDate are both given; give one of them"
        )
      }
      try TaskQueueError.check(delay: delay, "\(path)delay")
    }
    try TaskQueueError.check(delay: choices.uniqueFor, "\(path)uniqueFor")
    try TaskQueueError.check(delay: choices.maxDelay, "\(path)maxDelay")
    if let delay = choices.delay, let maxDelay = choices.maxDelay, delay > maxDelay {
      throw TaskQueueError(
        .invalidArgument,
        "\(path)delay (\(delay)) is longer than \(path)maxDelay (\(maxDelay)); give a shorter "
          + "delay or a longer maxDelay"
      )
    }
    try TaskQueueError.check(storable: choices.availableDate, "\(path)availableDate")
    if let limit = choices.maxRetries { try TaskQueueError.check(limit, "\(path)maxRetries") }
    try TaskQueueError.check(storable: choices.timeLimit, "\(path)timeLimit")
    try TaskQueueError.check(timeLimit: choices.timeLimit, "\(path)timeLimit")
    try TaskQueueError.check(storable: choices.expiryDate, "\(path)expiryDate")
    try TaskQueueError.check(choices.tags, "\(path)tags")
    try TaskQueueError.check(metadata: choices.metadata, "\(path)metadata")
    try TaskQueueError.check(key: choices.orderKey, "\(path)orderKey")
    try TaskQueueError.check(choices.conditions, "\(path)conditions")
    try TaskQueueError.check(dependencies: choices.dependencies, "\(path)dependencies")
    if !choices.dependencies.isEmpty, choices.onDuplicate == .replace {
      throw TaskQueueError(
        .invalidArgument,
        "\(path)dependencies is given with \(path)onDuplicate: .replace, but a task that waits for "
          + "others can't replace another task with the same unique key; leave one of them out"
      )
    }
  }

  /// Makes a new task with these options, in which the options from all sources are already set.
  ///
  /// - Throws: a ``TaskQueueError`` that names an invalid option.
  func record(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    uniqueKey: String?,
    prohibitsBackoff: Bool,
    follower: TaskID? = nil,
    now: Date
  ) throws(TaskQueueError) -> TaskRecord {
    try check(name: name)
    try TaskQueueError.check(key: uniqueKey, "uniqueKey")
    try check(path: "")
    let record =
      isEmpty && follower == nil
      ? TaskRecord(
        id: id,
        name: name,
        payload: payload,
        usesBackoff: !prohibitsBackoff,
        uniqueKey: uniqueKey,
        now: now
      )
      : chosenRecord(id, name, payload, uniqueKey, prohibitsBackoff, follower, now)
    // The dates and durations are already checked. The store checks whether it can store the rest.
    try record.check(.readable)
    try checkDoesNotExpireFirst(record)
    return record
  }

  private func chosenRecord(
    _ id: TaskID,
    _ name: String,
    _ payload: StoredPayload,
    _ uniqueKey: String?,
    _ prohibitsBackoff: Bool,
    _ follower: TaskID?,
    _ now: Date
  ) -> TaskRecord {
    let chosen = availableDate?.storable
    return TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority ?? .normal,
      createdDate: now,
      maxRetries: maxRetries ?? 10,
      usesBackoff: !prohibitsBackoff && usesBackoff ?? true,
      uniqueKey: uniqueKey,
      uniqueUntil: uniqueKey == nil ? nil : uniqueFor.map { now.storableDate(after: $0) },
      latestDate: uniqueKey == nil ? nil : maxDelay.map { now.storableDate(after: $0) },
      orderKey: orderKey,
      blocksOrderOnFailure: orderKey != nil && blocksOrderOnFailure ?? false,
      conditions: conditions,
      dependencies: dependencies(withFollower: follower),
      tags: tags,
      metadata: metadata,
      timeLimit: timeLimit,
      expiryDate: expiryDate?.storable,
      availableDate: chosen ?? delay.map { now.storableDate(after: $0) } ?? now,
      // If the chosen date has passed, the task is available now, as if no date was chosen.
      countedFrom: chosen.map { $0 > now } ?? false ? nil : now
    )
  }

  private func checkDoesNotExpireFirst(_ record: TaskRecord) throws(TaskQueueError) {
    guard let expiryDate, record.availableDate >= expiryDate else { return }
    throw TaskQueueError(
      .invalidArgument,
      "expiryDate (\(expiryDate)) is not after availableDate (\(record.availableDate)), so "
        + "the task could never be performed; give a later expiryDate"
    )
  }

  private func check(name: String) throws(TaskQueueError) {
    guard name.isEmpty else { return }
    throw TaskQueueError(.invalidArgument, "the name of a task is empty; give the task a name")
  }

  private func dependencies(withFollower follower: TaskID?) -> TaskDependencies? {
    guard follower != nil || !dependencies.isEmpty || dependencyRule != nil else { return nil }
    return TaskDependencies(
      on: dependencies,
      rule: dependencyRule ?? .allSucceeded,
      follower: follower
    )
  }
}
