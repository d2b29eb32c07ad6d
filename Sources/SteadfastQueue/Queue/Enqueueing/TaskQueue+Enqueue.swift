import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Adds a task.
  ///
  /// The task is stored when the call returns. A handler that adds a task to its own queue calls
  /// the method of its ``TaskContext``, so it needs no reference to the queue.
  ///
  /// An argument that is left out is taken from `options`, then from the payload's type
  /// (``TaskPayload/options``), then from the queue's
  /// ``TaskQueueConfiguration/taskDefaults``; see ``TaskOptions``.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - delay: how long from now until the task may be performed, in place of a date.
  ///   - maxRetries: how often it is tried again when it fails; by default 10 times, so 11
  ///     attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once; by default
  ///     it waits.
  ///   - priority: its rank among the available tasks; by default ``Priority/normal``.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own
  ///     (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task with the key waits or is performed already; by default
  ///     ``UniquePolicy/keep``.
  ///   - options: everything else: a time limit, an expiry date, tags.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: a ``TaskQueueError`` if an argument makes no sense or a duplicate is rejected; what
  ///   the payload's encoding throws; what the store throws; `CancellationError` if it is to
  ///   replace a task, and is cancelled while another call for that one waits for a store that is
  ///   gone. After an error the task was not added, unless the error says that the outcome is
  ///   unknown.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payload: Payload,
    availableDate: Date? = nil,
    delay: Duration? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: Priority? = nil,
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    var chosen = TaskOptions(
      availableDate: availableDate,
      delay: delay,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      onDuplicate: policy
    )
    chosen.fill(from: options)
    return try await add(Draft(payload, uniqueKey, chosen))
  }

  /// Adds several tasks of one type in one step: all of them or, if it throws, none.
  ///
  /// Each task is added as by the call for a single payload.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, one payload for each task.
  ///   - options: the options of all of the tasks.
  ///   - uniqueKey: returns the key of a task, of which one at a time is performed. If it returns
  ///     `nil`, and by default, the key is the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as for a single task. After an error that says that the outcome is unknown, all of
  ///   the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try await add(payloads.map { Draft($0, uniqueKey($0), options) })
  }

  /// Adds a task that has a name and any JSON, and no payload type.
  ///
  /// Otherwise it does what the call with a payload type does. Register its handler with
  /// ``register(name:maxConcurrentTasks:perform:)`` or ``registerFallback(perform:)``. A handler
  /// that is registered for a payload type of this name performs the task, too.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - uniqueKey: a key of which one task at a time is performed; by default none.
  ///   - options: the options of the task.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: as for a task with a payload type.
  @discardableResult
  public nonisolated func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await add(Draft(name, try StoredPayload(payload), uniqueKey, options))
  }
}

extension TaskQueue {
  /// Adds tasks that may wait for each other in one step: all of them or, if it throws, none.
  ///
  /// ```swift
  /// try await queue.enqueue { tasks in
  ///   let album = try tasks.add(CreateAlbum(title: "Summer"))
  ///   let cover = try tasks.add(UploadCover())
  ///   try tasks.add(Share(), options: TaskOptions(dependencies: [album, cover]))
  /// }
  /// ```
  ///
  /// If another task has the unique key of one of them, none is added.
  ///
  /// - Parameter body: a closure that adds the tasks. It may be called more than once.
  /// - Returns: the tasks, in the order in which they were added.
  /// - Throws: what `body` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unmetDependency`` if one of them names a task that is not in the
  ///   store, or has ended without success, with ``TaskQueueError/Code/duplicate`` if another task
  ///   has a unique key; what the store throws. After an error that says that the outcome is
  ///   unknown, all of the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue(
    together body: (inout TaskDrafts) throws -> Void
  ) async throws -> [EnqueuedTask] {
    try await open()
    return try await add(.reject) { now in
      var drafts = TaskDrafts(for: self, at: now)
      try body(&drafts)
      return drafts.records
    }
  }

  /// Adds a batch of tasks, and one that follows when all of them have ended, in one step.
  ///
  /// ```swift
  /// let notice = Notify(album: album)
  /// let batch = try await queue.enqueue(contentsOf: photos, then: notice)
  /// ```
  ///
  /// With the follower's ``TaskOptions/dependencyRule``, it follows if all have succeeded, which is
  /// the default, or however they have ended. In the first case it is cancelled as soon as one of
  /// them ends without success; the others go on. If there are no payloads, it is available at
  /// once.
  ///
  /// A handler of a task of the batch can add further ones
  /// (``TaskContext/enqueueInBatch(_:options:)``). If another task has the unique key of one of
  /// them, none is added.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers of the batch are given, one payload for each task.
  ///   - options: the options of the tasks of the batch.
  ///   - follower: the payload of the task that follows. It must have no unique key.
  ///   - followerOptions: the options of the task that follows.
  /// - Returns: the tasks.
  /// - Throws: as ``enqueue(together:)``.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload, Follower: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    then follower: Follower,
    followerOptions: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedBatch {
    guard follower.storedUniqueKey == nil else {
      throw TaskQueueError(
        .invalidArgument,
        "the task that follows the batch has the unique key '\(follower.storedUniqueKey ?? "")': another "
          + "task could stand for it, which would not follow; give it no unique key"
      )
    }
    let members = payloads.map { Draft($0, nil, options) }
    let last = Draft(follower, nil, followerOptions)
    var tasks = try await enqueue { drafts in
      let id = drafts.nextID()
      for member in members { try drafts.add(member, follower: id) }
      try drafts.add(last, id: id)
    }
    let enqueuedFollower = tasks.removeLast()
    return EnqueuedBatch(tasks: tasks, follower: enqueuedFollower)
  }

  /// Adds tasks to a batch that was enqueued before.
  nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: [Payload],
    options: TaskOptions,
    inBatchBefore follower: TaskID
  ) async throws -> [EnqueuedTask] {
    let members = payloads.map { Draft($0, nil, options) }
    let defaults = configuration.taskDefaults
    let mayWait = members.contains { member in
      let options = member.options
      return member.uniqueKey != nil || !options.dependencies.isEmpty
        || !defaults.dependencies.isEmpty || (options.orderKey ?? defaults.orderKey) != nil
    }
    guard !mayWait else {
      throw TaskQueueError(
        .invalidArgument,
        "a task that is added to a batch has 'dependencies', 'orderKey' or a unique key: it could "
          + "wait for the task that follows the batch, which waits for it"
      )
    }
    return try await enqueue { drafts in
      for member in members { try drafts.add(member, follower: follower) }
    }
  }
}

/// Tasks that were enqueued as a batch, and the task that follows when all of them have ended.
public struct EnqueuedBatch: Sendable {
  /// The tasks of the batch, in the order of their payloads.
  public let tasks: [EnqueuedTask]
  /// The task that waits for all of them.
  public let follower: EnqueuedTask

  /// Returns how many tasks of the batch have ended, in this process or in another one.
  ///
  /// ``TaskEvent/batchProgressed(followedBy:_:)`` tells it at each end.
  ///
  /// - Returns: the progress, with tasks that handlers have added; `nil` if the task that follows
  ///   is not in the store any more.
  /// - Throws: what the store throws.
  public func progress() async throws -> BatchProgress? {
    try await follower.record().map { $0.dependencies.batch ?? BatchProgress() }
  }

  /// Cancels the task that follows, and those of ``tasks`` that have not ended.
  ///
  /// Tasks that handlers have added to the batch (``TaskContext/enqueueInBatch(_:options:)``) go
  /// on. To cancel those too, give all tasks of the batch a tag, and call
  /// ``TaskQueue/cancel(matching:)``.
  ///
  /// - Throws: what the store throws; some tasks may have been cancelled by then.
  public func cancel() async throws {
    try await follower.cancel()
    for task in tasks { try await task.cancel() }
  }
}

extension TaskQueue {
  /// Returns a SQL statement that adds a task within a transaction of yours.
  ///
  /// ```swift
  /// let statement = try queue.insertStatement(for: SendReceipt(order: number))
  /// try connection.execute(statement.text, statement.parameters)
  /// ```
  /// The statement does what `enqueue` would do with the same arguments. Nothing is stored until
  /// you execute it and commit. Then a queue that runs on the database finds the task by itself, in
  /// this process or in another one. A payload that the store seals is sealed in the statement.
  ///
  /// This waits for nothing, so it can be called within a transaction. The queue must have been
  /// opened before (``open()``), which makes what the statement needs.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own
  ///     (``TaskPayload/uniqueKey``). With ``UniquePolicy/reject``, the statement fails if there is
  ///     a duplicate; with the others it succeeds, and adds none.
  ///   - options: the options of the task. Dates and delays count from this call.
  /// - Returns: the statement, for one execution: it names the task's ID.
  /// - Throws: a ``TaskQueueError`` if an argument makes no sense, or the store has no such
  ///   statements; what the payload's encoding throws.
  public nonisolated func insertStatement<Payload: TaskPayload>(
    for payload: Payload,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> InsertStatement {
    try checkCanOpen()
    let draft = Draft(payload, uniqueKey, options).filled(from: configuration.taskDefaults)
    let now = self.now
    let record = try record(of: draft, id: generators.nextID(at: now), now: now)
    let policy = draft.policy
    guard let statement = try store.insertStatement(for: record, onDuplicate: policy) else {
      throw TaskQueueError(
        .invalidArgument,
        "the store (\(store)) has no SQL statement that adds a task to it, as a SQLite store or a "
          + "PostgreSQL store has; call enqueue"
      )
    }
    return statement
  }
}

/// Stores new tasks, and reports them.
extension TaskQueue {
  /// What a call says about a new task.
  struct Draft {
    let name: String
    let payload: StoredPayload
    let uniqueKey: String?
    /// What the call and the payload choose.
    private(set) var options: TaskOptions

    init(_ name: String, _ payload: StoredPayload, _ uniqueKey: String?, _ options: TaskOptions) {
      self.name = name
      self.payload = payload
      self.uniqueKey = uniqueKey
      self.options = options
    }

    init<Payload: TaskPayload>(_ payload: Payload, _ uniqueKey: String?, _ options: TaskOptions) {
      var options = options
      options.fill(from: payload.options)
      self.init(
        Payload.taskName,
        StoredPayload(payload),
        uniqueKey ?? payload.storedUniqueKey,
        options
      )
    }

    /// Returns the draft with the queue's defaults for what is not chosen.
    consuming func filled(from defaults: TaskOptions) -> Draft {
      options.fill(from: defaults)
      return self
    }

    var policy: UniquePolicy { options.onDuplicate ?? .keep }
  }

  /// Adds a new task.
  ///
  /// It makes no arrays but those that the store takes and returns.
  nonisolated func add(_ draft: consuming Draft) async throws -> EnqueuedTask {
    try await open()
    let draft = draft.filled(from: configuration.taskDefaults)
    for _ in 0..<Self.mostDraws {
      let now = self.now
      let id = generators.nextID(at: now)
      let record = try record(of: draft, id: id, now: now)
      if let task = try await insert(record, draft.policy, now) {
        if isTimeToYield(after: CollectionOfOne(record)) { await Task.yield() }
        return task
      }
    }
    throw takenIDs
  }

  /// Adds new tasks.
  nonisolated func add(_ drafts: [Draft]) async throws -> [EnqueuedTask] {
    try await open()
    let drafts = drafts.map { $0.filled(from: configuration.taskDefaults) }
    guard let policy = drafts.first?.policy else { return [] }
    guard drafts.allSatisfy({ $0.policy == policy }) else {
      throw TaskQueueError(
        .invalidArgument,
        "the payloads choose different values of onDuplicate, and one call has one; give it in the "
          + "options of the call"
      )
    }
    return try await add(policy) { now in
      try drafts.map { try record(of: $0, id: generators.nextID(at: now), now: now) }
    }
  }

  /// Makes the record of a new task, once all options are filled in.
  nonisolated func record(
    of draft: Draft,
    follower: TaskID? = nil,
    id: TaskID,
    now: Date
  ) throws -> TaskRecord {
    try draft.options.record(
      id: id,
      name: draft.name,
      payload: try forStore(draft.payload),
      uniqueKey: draft.uniqueKey,
      prohibitsBackoff: configuration.prohibitsBackoff,
      follower: follower,
      now: now
    )
  }

  private nonisolated func forStore(_ payload: StoredPayload) throws -> StoredPayload {
    if RealWork.encodesPayloads { return try payload.withoutValue() }
    // Most stores keep bytes, and would have to make other records of these.
    return store.appliesAtOnce ? payload : try payload.encoded()
  }

  /// Adds new tasks, which are made once more if the store holds tasks with their IDs.
  nonisolated func add(
    _ policy: UniquePolicy,
    _ make: (Date) throws -> [TaskRecord]
  ) async throws -> [EnqueuedTask] {
    for _ in 0..<Self.mostDraws {
      let now = self.now
      let records = try make(now)
      if let tasks = try await insert(records, policy, now) {
        if isTimeToYield(after: records) { await Task.yield() }
        return tasks
      }
    }
    throw takenIDs
  }

  /// How often a task gets another ID.
  ///
  /// IDs are random, so a collision means that another queue uses the same seed.
  private static let mostDraws = 8

  private nonisolated var takenIDs: TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) holds tasks with the IDs that the queue '\(name)' draws: two "
        + "queues on one store must not have the same seed as their randomness"
    )
  }

  /// How many tasks a caller adds, on average, before it yields its thread.
  private static let tasksBeforeYielding: UInt64 = 32

  /// Whether a caller yields its thread to other Swift tasks, as it does from time to time.
  ///
  /// A store in memory never suspends its callers. A few callers that add one task after another
  /// would hold all of Swift's threads, and no worker could perform what they add.
  private nonisolated func isTimeToYield(after records: some Collection<TaskRecord>) -> Bool {
    // Decide by the IDs, which are random. Callers on several threads would contend for a counter.
    store.appliesAtOnce
      && records.contains { ($0.id.low >> 16).isMultiple(of: Self.tasksBeforeYielding) }
  }

  /// Stores a new task.
  ///
  /// - Returns: The enqueued task; `nil` if the store holds a task with its ID.
  private nonisolated func insert(
    _ record: TaskRecord,
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> EnqueuedTask? {
    // Make the handle before the task can be performed, so that no outcome is missed.
    var task = newTask(record)
    let isStored = try await store(CollectionOfOne(record), policy) { results in
      if case .replaced(let twin) = results[0] { await observers.tookOver(twin) }
      if let twin = inserted(record, results[0], now) { task = twin }
    }
    return isStored ? task : nil
  }

  /// Stores new tasks.
  ///
  /// - Returns: The enqueued tasks; `nil` if the store holds a task with one of their IDs.
  private nonisolated func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [EnqueuedTask]? {
    // Of several tasks with one key, one is stored, and stands for all of them.
    let kept = records.count > 1 ? try Self.oneOfEachKey(records, policy) : records
    var tasks = kept.map(newTask)
    let areStored = try await store(kept, policy) { results in
      for index in kept.indices {
        // Only this one waits, so that the others need no asynchronous call.
        if case .replaced(let twin) = results[index] { await observers.tookOver(twin) }
        if let twin = inserted(kept[index], results[index], now) { tasks[index] = twin }
      }
    }
    guard areStored else { return nil }
    return kept.count == records.count ? tasks : tasks.standing(for: records, kept)
  }

  /// Stores new tasks, and lets `tell` tell what has become of them.
  ///
  /// - Returns: Whether they are stored; if not, the store holds a task with one of their IDs.
  private nonisolated func store(
    _ records: some Collection<TaskRecord>,
    _ policy: UniquePolicy,
    tell: ([ChangeOutcome]) async -> Void
  ) async throws -> Bool {
    // The turn lasts until what was stored is told.
    let keys = policy == .replace ? turnKeys(of: records) : []
    if !keys.isEmpty { try await observers.keyTurns.begin(keys) }
    defer { if !keys.isEmpty { observers.keyTurns.end(keys) } }
    observers.willEnqueue(records)
    let results: [ChangeOutcome]
    do {
      if policy == .replace {
        results = try await replace(with: records)
      } else {
        results = try await persist(records.map { .insert($0, onDuplicate: policy) })
      }
      guard !results.contains(where: \.isNoneOfInsertion) else {
        throw UnusableAnswer(results: results, to: records.count)
      }
    } catch {
      observers.didNotEnqueue(records)
      // During the call, a claim may have skipped a task that was to be replaced.
      lookForWork()
      throw error
    }
    if !results.allSatisfy(\.isUsual) {
      guard try wereInserted(records, results, policy) else { return false }
    }
    await tell(results)
    return true
  }

  private nonisolated func newTask(_ record: TaskRecord) -> EnqueuedTask {
    EnqueuedTask(handle: observers.outcomes.handle(of: record.id), isNew: true, queue: self)
  }

  /// Stores tasks that replace those with their unique keys.
  ///
  /// If a task that has the key is being changed, this waits until that change is reported, and
  /// then asks the store again.
  private nonisolated func replace(
    with records: some Collection<TaskRecord>
  ) async throws -> [ChangeOutcome] {
    let batch = records.map { TaskChange.insert($0, onDuplicate: .replace) }
    var results: [ChangeOutcome] = []
    for _ in 0..<Self.mostRefusals {
      results = try await persist(batch)
      let twins = results.compactMap(\.twinThatWasKept)
      if twins.isEmpty { return results }
      for twin in twins {
        try await observers.changes.wait(until: .allIsTold, of: twin)
      }
    }
    throw UnusableAnswer(results: results, to: batch.count)
  }

  /// Reports what happened to a new task.
  ///
  /// - Returns: The twin, if it stays in place of the new task.
  private nonisolated func inserted(
    _ record: TaskRecord,
    _ result: ChangeOutcome,
    _ now: Date
  ) -> EnqueuedTask? {
    switch result {
    case .duplicate(let twin), .replaced(let twin):
      observers.didNotEnqueue(CollectionOfOne(record))
      // The store has chosen the date, which may be earlier than before. A claim returns it.
      if case .replaced = result { lookForWork() }
      return EnqueuedTask(handle: observers.outcomes.handle(of: twin), isNew: false, queue: self)
    case .stale, .superseded, .doneWithConsequences, .unmetDependency, .valueDiffers:
      preconditionFailure("an insertion has an outcome that is none")
    case .done, .identityTaken, .batchRefused:
      break
    }
    observers.events.announce(record.id)
    reportIfUnhandled(record)
    becomesAvailable(at: record.availableDate, after: now)
    return nil
  }
}

extension ChangeOutcome {
  /// Whether no insertion has this outcome.
  fileprivate var isNoneOfInsertion: Bool {
    switch self {
    case .stale, .superseded, .doneWithConsequences, .valueDiffers: true
    case .done, .replaced, .duplicate, .unmetDependency, .identityTaken, .batchRefused: false
    }
  }

  /// Whether a new task was added as it is.
  fileprivate var isUsual: Bool { if case .done = self { true } else { false } }

  fileprivate var twinThatWasKept: TaskID? {
    if case .duplicate(let twin) = self { twin } else { nil }
  }
}

/// Unique keys of tasks that are added in one call.
extension TaskQueue {
  /// Returns the tasks without those whose name and unique key another one has.
  ///
  /// Of such tasks, the last one replaces the others; with other policies, the first one stays.
  static func oneOfEachKey(
    _ records: [TaskRecord],
    _ policy: UniquePolicy
  ) throws(TaskQueueError) -> [TaskRecord] {
    var keys: Set<NamedKey> = []
    func isFirst(_ record: TaskRecord) -> Bool {
      NamedKey(record).map { keys.insert($0).inserted } ?? true
    }
    if policy == .replace { return records.reversed().filter(isFirst).reversed() }
    let kept = records.filter(isFirst)
    if policy == .reject, kept.count < records.count {
      throw TaskQueueError(
        .duplicate,
        "two of the new tasks have the same unique key; give each of them another one"
      )
    }
    return kept
  }

  /// Returns the unique keys whose turns a call takes that replaces or changes these tasks.
  ///
  /// Of two such calls at the same time, it would be unknown which was stored first. That holds for
  /// a store that applies changes at once, too: each call tells what it has stored after that.
  nonisolated func turnKeys(of records: some Collection<TaskRecord>) -> Set<String> {
    Set(records.compactMap(\.uniqueKey))
  }
}

/// A unique key, and the name to which it belongs.
private struct NamedKey: Hashable {
  let name: ExactText
  let key: ExactText

  init?(_ record: TaskRecord) {
    guard let key = record.uniqueKey else { return nil }
    (name, self.key) = (ExactText(record.name), ExactText(key))
  }
}

extension [EnqueuedTask] {
  /// Returns the task that stands for each of the records, of which only `kept` were stored.
  func standing(for records: [TaskRecord], _ kept: [TaskRecord]) -> [EnqueuedTask] {
    var ofKey: [NamedKey: EnqueuedTask] = [:]
    var ofID: [TaskID: EnqueuedTask] = [:]
    for (record, task) in zip(kept, self) {
      if let key = NamedKey(record) { ofKey[key] = task }
      ofID[record.id] = task
    }
    return records.compactMap { record in
      ofID[record.id] ?? NamedKey(record).flatMap { ofKey[$0]?.asFound }
    }
  }
}

/// New tasks that a store does not add.
extension TaskQueue {
  /// Returns whether the store has added the tasks; if not, it holds a task with one of their IDs.
  ///
  /// - Throws: The reason why the store has refused them.
  nonisolated func wereInserted(
    _ records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) throws -> Bool {
    guard !results.contains(.identityTaken) else {
      observers.didNotEnqueue(records)
      return false
    }
    if let error = unmetDependency(of: records, results) ?? rejection(of: records, results, policy)
    {
      observers.didNotEnqueue(records)
      throw error
    }
    return true
  }

  /// Returns the error for the first task that was rejected, if there is one.
  private nonisolated func rejection(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) -> TaskQueueError? {
    guard policy == .reject else { return nil }
    for (record, result) in zip(records, results) {
      guard case .duplicate(let twin) = result else { continue }
      return TaskQueueError(
        .duplicate,
        "a task with the unique key '\(record.uniqueKey ?? "")' is there already: \(twin); use that "
          + "one, which task(_:) returns, or give the new one another key or another onDuplicate"
      )
    }
    return nil
  }

  /// Returns the error for the first task that would wait for another one without end, if there is
  /// one.
  private nonisolated func unmetDependency(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome]
  ) -> TaskQueueError? {
    for (record, result) in zip(records, results) {
      guard case .unmetDependency(let id) = result else { continue }
      return TaskQueueError(
        .unmetDependency,
        "the new task of the name '\(record.name)' would wait without end for the task \(id), which is "
          + "not in the store, or has ended without success; name tasks that have not ended, or "
          + "enqueue both in one call"
      )
    }
    return nil
  }
}

// What one may guess, and what has another form. Without these, a call is an error of the
// compiler's all the same. With them, the error says what to write.

extension TaskQueue {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func cancel(_ task: EnqueuedTask) async throws -> Bool {
    try await cancel(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func pause(_ task: EnqueuedTask) async throws -> Bool {
    try await pause(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func resume(_ task: EnqueuedTask) async throws -> Bool {
    try await resume(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func retry(_ task: EnqueuedTask) async throws -> Bool {
    try await retry(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func remove(_ task: EnqueuedTask) async throws -> Bool {
    try await remove(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id, or call reschedule(to:) of the task")
  @discardableResult
  public nonisolated func reschedule(
    _ task: EnqueuedTask,
    to date: Date
  ) async throws -> Bool {
    try await reschedule(task.id, to: date)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id, or call performNow() of the task")
  @discardableResult
  public nonisolated func performNow(_ task: EnqueuedTask) async throws -> Bool {
    try await performNow(task.id)
  }
}

extension TaskContext {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }
}

extension TaskAbandoned {
  /// Not here: the reason is a text.
  @available(
    *,
    unavailable,
    message: "give the reason as a text, or throw an error whose retryDecision is .stop"
  )
  public init(_ error: any Error) { self.init("\(error)") }
}
