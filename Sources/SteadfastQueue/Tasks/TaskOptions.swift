#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Everything that can be chosen for a new task, except its payload and its unique key.
///
/// ```swift
/// let options = TaskOptions(priority: .high)
/// try await queue.enqueue(contentsOf: photos, options: options)
/// ```
///
/// An option that is left out is taken from elsewhere. The first place in this list that gives it
/// counts:
/// 1. a labelled argument of the call, as in `enqueue(photo, priority: .high)`;
/// 2. the call's `options`;
/// 3. the payload type's ``TaskPayload/options-swift.type.property``;
/// 4. the queue's ``TaskQueueConfiguration/taskDefaults``;
/// 5. the default of the property, as given below.
///
/// A date and a delay are one choice. A delay replaces an available date from a later place in this
/// list, and a date replaces a delay. Tags and conditions add up: a task has those of all places.
public struct TaskOptions: Sendable, Equatable {
  // Most calls choose nothing. Then this is one word, and passing it on costs nothing.
  var choices: Rare<Choices>

  /// Makes options; every argument has a default, which chooses nothing.
  public init(
    availableDate: Date? = nil,
    delay: Duration? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: TaskQueue.Priority? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String> = [],
    onDuplicate: UniquePolicy? = nil,
    uniqueFor: Duration? = nil,
    maxDelay: Duration? = nil,
    inOrder orderKey: String? = nil,
    holdsOrder: Bool? = nil,
    requires conditions: Set<TaskCondition> = [],
    after dependencies: Set<TaskID> = [],
    when rule: DependencyRule? = nil
  ) {
    // Most calls choose nothing. Then don't make choices only to find them empty.
    let choosesDate = availableDate != nil || delay != nil || maxDelay != nil
    let choosesRetries = maxRetries != nil || usesBackoff != nil || timeLimit != nil
    let choosesKey = onDuplicate != nil || uniqueFor != nil || orderKey != nil
    guard
      choosesDate || choosesRetries || choosesKey || priority != nil || expiryDate != nil
        || holdsOrder != nil || rule != nil || !tags.isEmpty || !conditions.isEmpty
        || !dependencies.isEmpty
    else {
      choices = Rare()
      return
    }
    choices = Rare(
      Choices(
        availableDate: availableDate,
        delay: delay,
        maxRetries: maxRetries,
        usesBackoff: usesBackoff,
        priority: priority,
        timeLimit: timeLimit,
        expiryDate: expiryDate,
        tags: tags,
        onDuplicate: onDuplicate,
        uniqueFor: uniqueFor,
        maxDelay: maxDelay,
        orderKey: orderKey,
        holdsOrder: holdsOrder,
        conditions: conditions,
        dependencies: dependencies,
        rule: rule
      )
    )
  }

  /// The date from which the task may be performed; by default now.
  public var availableDate: Date? {
    get { choices.present?.availableDate }
    set { choices.value.availableDate = newValue }
  }

  /// The time from enqueueing until the task may be performed; by default none.
  ///
  /// Give a delay or an ``availableDate``, not both. A delay must not be negative, and
  /// is at most 100,000,000,000 seconds.
  public var delay: Duration? {
    get { choices.present?.delay }
    set { choices.value.delay = newValue }
  }

  /// How often a failed task is tried again; by default 10 times, so 11 attempts.
  public var maxRetries: RetryLimit? {
    get { choices.present?.maxRetries }
    set { choices.value.maxRetries = newValue }
  }

  /// Whether a retry waits for the queue's backoff, or is due at once; by default it waits.
  public var usesBackoff: Bool? {
    get { choices.present?.usesBackoff }
    set { choices.value.usesBackoff = newValue }
  }

  /// The rank among the tasks that are available; by default ``TaskQueue/Priority/normal``.
  public var priority: TaskQueue.Priority? {
    get { choices.present?.priority }
    set { choices.value.priority = newValue }
  }

  /// What to do if another task has the same unique key; by default ``UniquePolicy/keep``.
  public var onDuplicate: UniquePolicy? {
    get { choices.present?.onDuplicate }
    set { choices.value.onDuplicate = newValue }
  }

  /// How long no other task with the same unique key is added after this one was; by default only
  /// until this one has ended.
  ///
  /// A task that has succeeded is retained for this time, and a new task with its key counts as a
  /// duplicate of it: with ``UniquePolicy/keep`` and ``UniquePolicy/join``, the call returns the
  /// one that has succeeded. A task that was abandoned or cancelled makes room at once.
  public var uniqueFor: Duration? {
    get { choices.present?.uniqueFor }
    set { choices.value.uniqueFor = newValue }
  }

  /// How long, from when it is first enqueued, later tasks with the same unique key may postpone
  /// the task; by default for ever.
  ///
  /// It is for ``UniquePolicy/replace`` with a ``delay``: each call postpones the task by the delay
  /// once more. The first call's limit counts.
  public var maxDelay: Duration? {
    get { choices.present?.maxDelay }
    set { choices.value.maxDelay = newValue }
  }

  /// The key of tasks that are performed one at a time, in the order in which they were enqueued;
  /// by default none.
  ///
  /// Tasks of all types with the key wait for one another, whatever their priorities and dates. The
  /// first of them that has not ended holds up the others: while it is performed, while it waits
  /// for its date or a retry, and while it is parked or paused. Tasks with other keys, and tasks
  /// without a key, do not wait for it.
  ///
  /// When the first one ends, in whatever way, the next one follows. ``holdsOrder`` says otherwise
  /// for one that ends without success. A restarted task takes the place that it had.
  public var inOrder: String? {
    get { choices.present?.orderKey }
    set { choices.value.orderKey = newValue }
  }

  /// Whether later tasks with the same order key wait if this one is abandoned or cancelled; by
  /// default they do not.
  ///
  /// The task is then retained, whatever the queue's ``Retention``, until it is restarted
  /// (``TaskQueue/restart(_:forgetting:)``) or removed (``TaskQueue/remove(_:)``). Then the others
  /// go on.
  public var holdsOrder: Bool? {
    get { choices.present?.holdsOrder }
    set { choices.value.holdsOrder = newValue }
  }

  /// What must hold when an attempt begins, such as ``TaskCondition/network``; by default nothing.
  ///
  /// An attempt that is under way goes on when a condition ends.
  public var requires: Set<TaskCondition> {
    get { choices.present?.conditions ?? [] }
    set { choices.value.conditions = newValue }
  }

  /// The tasks that must have ended before this one is performed; by default none.
  ///
  /// They must be in the store, or be added in the same call (``TaskQueue/enqueue(together:)``),
  /// and must not have ended without success. One that has succeeded counts only as long as it is
  /// retained. At most 10,000 tasks can be named. A task that waits for others can't replace one
  /// with the same unique key.
  public var after: Set<TaskID> {
    get { choices.present?.dependencies ?? [] }
    set { choices.value.dependencies = newValue }
  }

  /// Whether the tasks that this one waits for must have succeeded, or have only ended; by default
  /// ``DependencyRule/allSucceeded``.
  public var when: DependencyRule? {
    get { choices.present?.rule }
    set { choices.value.rule = newValue }
  }

  /// How long one attempt may take; by default any time.
  ///
  /// When this time has passed, the attempt's Swift task is cancelled. The attempt has then failed
  /// with a `TimeoutError`, whatever it returns or throws.
  public var timeLimit: Duration? {
    get { choices.present?.timeLimit }
    set { choices.value.timeLimit = newValue }
  }

  /// The date from which no attempt begins; by default there is none.
  ///
  /// A task that has not ended by then is abandoned when its turn comes, or when its next retry
  /// would come too late. A task whose name has no handler gets no turn: it stays until there is
  /// one.
  public var expiryDate: Date? {
    get { choices.present?.expiryDate }
    set { choices.value.expiryDate = newValue }
  }

  /// Labels by which tasks are found, and cancelled together; by default none.
  ///
  /// A label must not be empty, and has no NUL (U+0000).
  public var tags: Set<String> {
    get { choices.present?.tags ?? [] }
    set { choices.value.tags = newValue }
  }

  /// Whether nothing is chosen.
  var isEmpty: Bool { choices.isEmpty }

  /// The options that a call, a type or a queue has chosen.
  struct Choices: RareValue, Equatable {
    var availableDate: Date?
    var delay: Duration?
    var maxRetries: RetryLimit?
    var usesBackoff: Bool?
    var priority: TaskQueue.Priority?
    var timeLimit: Duration?
    var expiryDate: Date?
    var tags: Set<String> = []
    var onDuplicate: UniquePolicy?
    var uniqueFor: Duration?
    var maxDelay: Duration?
    var orderKey: String?
    var holdsOrder: Bool?
    var conditions: Set<TaskCondition> = []
    var dependencies: Set<TaskID> = []
    var rule: DependencyRule?

    var isEmpty: Bool {
      availableDate == nil && delay == nil && maxRetries == nil && usesBackoff == nil
        && priority == nil && timeLimit == nil && expiryDate == nil && tags.isEmpty
        && onDuplicate == nil && uniqueFor == nil && maxDelay == nil
        && orderKey == nil && holdsOrder == nil && conditions.isEmpty
        && dependencies.isEmpty && rule == nil
    }

    mutating func fill(from others: Choices) {
      if availableDate == nil, delay == nil {
        availableDate = others.availableDate
        delay = others.delay
      }
      maxRetries = maxRetries ?? others.maxRetries
      usesBackoff = usesBackoff ?? others.usesBackoff
      priority = priority ?? others.priority
      timeLimit = timeLimit ?? others.timeLimit
      expiryDate = expiryDate ?? others.expiryDate
      tags.formUnion(others.tags)
      onDuplicate = onDuplicate ?? others.onDuplicate
      uniqueFor = uniqueFor ?? others.uniqueFor
      maxDelay = maxDelay ?? others.maxDelay
      orderKey = orderKey ?? others.orderKey
      holdsOrder = holdsOrder ?? others.holdsOrder
      conditions.formUnion(others.conditions)
      dependencies.formUnion(others.dependencies)
      rule = rule ?? others.rule
    }
  }
}

extension TaskOptions {
  /// Takes each option that is not chosen here from `others`.
  package mutating func fill(from others: TaskOptions) {
    guard !others.choices.isEmpty else { return }
    guard !choices.isEmpty else { return choices = others.choices }
    choices.value.fill(from: others.choices.value)
  }
}
