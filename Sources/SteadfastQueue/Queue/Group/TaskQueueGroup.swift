import SteadfastRetry
import Synchronization

/// Several queues on one store, each with its own name, workers and configuration.
///
/// ```swift
/// let group = TaskQueueGroup(persistence: .jsonFile(at: url))
/// let uploads = try await group.addQueue("uploads", configuration: fewWorkers)
/// await uploads.register(Upload.self) { upload, _ in try await send(upload) }
/// try await group.enqueue(Upload(url), on: "uploads")
/// try await group.run()
/// ```
///
/// Each queue performs, looks up, pauses and prunes only its own tasks. Unique keys and order keys
/// apply within one queue. A task may depend on tasks of other queues
/// (``TaskOptions/dependencies``), so each task ID occurs only once in the store. All queues share
/// the application's values (``TaskQueue/setValue(_:named:durability:)``).
///
/// If a later group has no queue with the name of an earlier one, the earlier queue's tasks stay in
/// the store. They are performed once a queue with that name is added. A queue of the group
/// performs the tasks that a ``TaskQueue`` with its name, but without a group, has left in the
/// store.
public final class TaskQueueGroup: Sendable {
  /// The group's name, shown in error messages.
  public let name: String
  private let store: any Persistence
  private let configuration: TaskQueueConfiguration
  let clock: any WallClock
  private let prepare: @Sendable (TaskQueue) async -> Void
  private let members: GroupMembers
  private let censuses: CensusCache
  let state = Mutex(State())

  struct State: Sendable {
    var queues: [String: TaskQueue] = [:]
    /// The names of queues that are being added.
    var namesBeingAdded: Set<String> = []
    /// Yields queues to the current run, which runs them; `nil` if the group is not running.
    var run: AsyncStream<TaskQueue>.Continuation?
    var isShutDown = false

    /// The queues sorted by name, so that tests in virtual time are reproducible.
    var sortedQueues: [TaskQueue] { queues.values.sorted { $0.name < $1.name } }
  }

  /// Makes a group without queues.
  ///
  /// This does not open the store.
  ///
  /// - Parameters:
  ///   - name: the group's name, for error messages.
  ///   - persistence: the store of all queues; by default in memory.
  ///   - configuration: the configuration of each queue that is added without its own.
  ///   - clock: the clock of all queues.
  ///   - prepare: a closure that is called with each new queue before it runs, for example to
  ///     register the handlers that all queues have.
  public init(
    name: String = "group",
    persistence: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    clock: some WallClock = ContinuousClock(),
    preparing prepare: @escaping @Sendable (TaskQueue) async -> Void = { _ in }
  ) {
    self.name = name
    store = persistence
    self.configuration = configuration
    self.clock = clock
    self.prepare = prepare
    members = GroupMembers(group: name, on: persistence)
    censuses = CensusCache(QueueTime(clock), members.availability)
  }

  // MARK: Queues

  /// Makes a queue, and adds it to the group.
  ///
  /// If the group is running, the queue starts to run at once.
  ///
  /// - Parameters:
  ///   - name: the queue's name, under which its tasks are stored: 1 to 255 bytes of UTF-8 without
  ///     control characters.
  ///   - configuration: how the queue performs its tasks; by default the group's configuration.
  /// - Returns: The queue, which the group keeps.
  /// - Throws: A ``TaskQueueError`` if the group already has a queue with this name
  ///   (``TaskQueueError/Code/nameTaken``), the name is invalid, or the group was shut down.
  @discardableResult
  public func addQueue(
    _ name: String,
    configuration: TaskQueueConfiguration? = nil
  ) async throws -> TaskQueue {
    try reserveName(name)
    let queue = TaskQueue(
      name: name,
      persistence: GroupStore(store, queue: name, members: members),
      configuration: configuration ?? self.configuration,
      clock: clock
    )
    await prepare(queue)
    members.add(queue.core)
    let isShutDown = state.withLock { state in
      state.namesBeingAdded.remove(name)
      state.queues[name] = queue
      state.run?.yield(queue)
      return state.isShutDown
    }
    if isShutDown { queue.beginShutDown() }
    return queue
  }

  private func reserveName(_ name: String) throws(TaskQueueError) {
    try TaskQueueError.check(nameOfQueue: name)
    let (isTaken, isShutDown) = state.withLock { state in
      let isTaken = state.queues[name] != nil || !state.namesBeingAdded.insert(name).inserted
      return (isTaken, state.isShutDown)
    }
    if isTaken {
      throw TaskQueueError(
        .nameTaken,
        "the group '\(self.name)' already has a queue named '\(name)'; get it with queue(named:)"
      )
    }
    guard isShutDown else { return }
    state.withLock { _ = $0.namesBeingAdded.remove(name) }
    throw shutDownError
  }

  var shutDownError: TaskQueueError {
    TaskQueueError(.shutDown, "the group '\(name)' was shut down; make a new one")
  }

  /// Returns the queue with a name.
  ///
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/unknownQueue`` if the group
  ///   has no queue with this name.
  public func queue(named name: String) throws(TaskQueueError) -> TaskQueue {
    if let queue = state.withLock({ $0.queues[name] }) { return queue }
    let names = queues.map { "'\($0.name)'" }.joined(separator: ", ")
    throw TaskQueueError(
      .unknownQueue,
      "the group '\(self.name)' has no queue named '\(name)'; its queues are: "
        + (names.isEmpty ? "none" : names) + "; add it with addQueue(_:configuration:)"
    )
  }

  /// The queues of the group, in the order of their names.
  public var queues: [TaskQueue] {
    state.withLock { $0.sortedQueues }
  }

  // MARK: Tasks

  /// Adds a task to the queue with a name.
  ///
  /// This is a shorthand for calling `enqueue` on the queue.
  ///
  /// - Parameters:
  ///   - payload: the task's payload.
  ///   - name: the name of the queue.
  ///   - delay: how long the task waits before it is available.
  ///   - uniqueKey: a key that identifies duplicates of the task in the queue; by default
  ///     ``TaskPayload/uniqueKey``.
  ///   - options: how the task is performed; by default the options of its type.
  /// - Returns: The task.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/unknownQueue`` if the group
  ///   has no queue with this name; the same errors as the queue's `enqueue`.
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payload: Payload,
    on name: String,
    delay: Duration? = nil,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await queue(named: name).enqueue(
      payload,
      delay: delay,
      uniqueKey: uniqueKey,
      options: options
    )
  }

  /// Returns how many tasks in the store match a filter; by default, counts unfinished tasks.
  ///
  /// This also counts the tasks of queues that were not added to this group. To count the tasks of
  /// one queue, set the filter's ``TaskFilter/queue``; an empty name means all queues.
  ///
  /// - Throws: The error that keeps the store from being opened or read.
  public func count(matching filter: TaskFilter = .unfinished) async throws -> Int {
    try await store.open()
    return try await store.count(matching: replacingQueueName(in: filter))
  }

  /// Returns the tasks in the store that match a filter, in the order of their IDs, or in the
  /// reverse order.
  ///
  /// This also returns the tasks of queues that were not added to this group. ``TaskRecord/queue``
  /// is the name of a task's queue; it is empty for the queue `"default"`.
  ///
  /// - Parameters:
  ///   - filter: which tasks to return; by default those that have not ended.
  ///   - id: only tasks that come after this ID are returned.
  ///   - limit: the maximum number of tasks; by default all of them. A negative number means none.
  ///   - newestFirst: whether the tasks with the greatest IDs come first.
  /// - Returns: The tasks.
  /// - Throws: The error that keeps the store from being opened or read.
  public func tasks(
    matching filter: TaskFilter = .unfinished,
    after id: TaskID? = nil,
    limit: Int? = nil,
    newestFirst: Bool = false
  ) async throws -> [TaskRecord] {
    try await store.open()
    return try await store.tasks(
      matching: replacingQueueName(in: filter),
      after: id,
      limit: limit,
      newestFirst: newestFirst,
      tasksUpTo: TaskIDGenerator.latest(before: clock.date)
    )
  }

  /// Returns the number of tasks in the store, by queue, name and state.
  ///
  /// This also counts the tasks of queues that were not added to this group. The name of the queue
  /// `"default"` is empty, as in ``TaskRecord/queue``. The group keeps the last census, and
  /// concurrent calls share one look-up, as with ``TaskQueue/census(maxAge:)``.
  ///
  /// - Parameter maxAge: how long ago the returned census may have been looked up; by default 10
  ///   seconds.
  /// - Returns: The census.
  /// - Throws: The error that keeps the store from being opened or read.
  public func census(maxAge: Duration = .seconds(10)) async throws -> TaskCensus {
    try await store.open()
    return try await censuses.census(maxAge: maxAge) {
      try await store.census(at: clock.date.storable)
    }
  }

  /// Returns a copy of a filter with the stored name of its queue.
  private func replacingQueueName(in filter: TaskFilter) -> TaskFilter {
    var filter = filter
    filter.queue = filter.queue.flatMap { $0.isEmpty ? nil : NamedStore.storedName(ofQueue: $0) }
    return filter
  }

  /// Removes all tasks and values for good, and deletes their storage, such as the store's file.
  ///
  /// The call shuts the group down, cancels the attempts under way, and waits for them. Every later
  /// call throws.
  ///
  /// - Throws: A ``TaskQueueError`` if a handler of one of the queues makes the call
  ///   (``TaskQueueError/Code/waitsForItself``). `CancellationError` if the call is cancelled while
  ///   it waits for the attempts: then the group is shut down, but its tasks stay. Any error of the
  ///   store.
  public func destroy() async throws {
    let queues = queues
    for queue in queues { try queue.core.checkCanBeDestroyed() }
    try await QueueCore.markDestroyed(queues.map(\.core)) {
      await shutDown(within: .zero)
      for queue in queues { try await queue.core.waitForRunEnd() }
      try await store.destroy()
    }
  }
}

/// Operations on all queues of a group.
extension TaskQueueGroup {
  /// Performs the tasks of all queues until the call is cancelled or the group is shut down.
  ///
  /// Queues that are added later run, too. If only one queue is shut down, the others continue to
  /// run. If the run of one queue throws an error, the runs of the others are cancelled.
  ///
  /// - Throws: `CancellationError`; a ``TaskQueueError`` if the group is already running
  ///   (``TaskQueueError/Code/alreadyRunning``) or was shut down; the errors of
  ///   ``TaskQueue/run()``.
  public func run() async throws {
    let (queues, continuation) = AsyncStream.makeStream(of: TaskQueue.self)
    try beginRun(continuation)
    defer { endRun() }
    try await withThrowingDiscardingTaskGroup { group in
      for await queue in queues {
        group.addTask {
          do {
            try await queue.run()
          } catch let error as TaskQueueError where error.code == .shutDown {
            // The other queues continue.
          } catch {
            continuation.finish()
            throw error
          }
        }
      }
      // The sequence ends when the group is shut down, or this call is cancelled.
      try Task.checkCancellation()
    }
  }

  /// Performs the tasks of all queues until the process gets a signal, and then lets the attempts
  /// under way end.
  ///
  /// At the signal, the group is shut down (``beginShutDown(within:)``), as a queue is by
  /// ``TaskQueue/run(stoppingOn:_:within:onSignal:)``.
  ///
  /// - Parameters:
  ///   - signal: a signal.
  ///   - others: further signals.
  ///   - limit: how long attempts may continue after a signal.
  ///   - onSignal: called at each signal, for example to accept no more requests. It must not
  ///     block.
  /// - Throws: the same errors as ``run()``, except that the group was shut down.
  public func run(
    stoppingOn signal: UnixSignal,
    _ others: UnixSignal...,
    within limit: Duration,
    onSignal: @escaping @Sendable () -> Void = {}
  ) async throws {
    try await UnixSignal.watch([signal] + others, during: run) {
      self.beginShutDown(within: limit)
      onSignal()
    }
  }

  private func beginRun(
    _ continuation: AsyncStream<TaskQueue>.Continuation
  ) throws(TaskQueueError) {
    let error = state.withLock { state -> TaskQueueError? in
      if state.run != nil {
        return TaskQueueError(
          .alreadyRunning,
          "the group '\(name)' is already running; wait for that run to end, or cancel it"
        )
      }
      if state.isShutDown {
        return shutDownError
      }
      state.run = continuation
      for queue in state.sortedQueues { continuation.yield(queue) }
      return nil
    }
    if let error { throw error }
  }

  private func endRun() { state.withLock { $0.run = nil } }

  /// Performs the tasks of all queues that are available at the time of the call, and returns when
  /// they are done.
  ///
  /// The call ignores queues that are added after it has started, and queues that were shut down.
  /// If one queue throws an error, the others are cancelled.
  ///
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/runAvailable()``.
  @discardableResult
  public func runAvailable() async throws -> Int {
    try await runPass { try await $0.runAvailable() }
  }

  /// Performs the available tasks of all queues that are expected to end within the budget.
  ///
  /// All queues run at the same time, as with ``TaskQueue/run(within:)``, and have the same
  /// deadline. Each has its own workers and its own averages. When the deadline has passed, or the
  /// call is cancelled, attempts under way are cancelled, and their tasks are released. The call
  /// ignores queues that are added after it has started, and queues that were shut down. If one
  /// queue throws an error, the others are cancelled.
  ///
  /// - Parameter budget: how long attempts may continue, measured from the call. If it is zero or
  ///   less, no task starts.
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/run(within:)``.
  @discardableResult
  public func run(within budget: Duration) async throws -> Int {
    let time = QueueTime(clock)
    let deadline = time.deadline(after: budget)
    return try await runPass { try await $0.run(within: deadline - time.stopwatch()) }
  }

  private func runPass(
    _ body: @escaping @Sendable (TaskQueue) async throws -> Int
  ) async throws -> Int {
    let queues = try state.withLock { state throws(TaskQueueError) in
      if state.isShutDown { throw shutDownError }
      return state.sortedQueues
    }
    return try await withThrowingTaskGroup { group in
      for queue in queues {
        group.addTask {
          do {
            return try await body(queue)
          } catch let error as TaskQueueError where error.code == .shutDown {
            return 0
          }
        }
      }
      return try await group.reduce(0, +)
    }
  }

  /// Waits until all queues are idle at the same time.
  ///
  /// - Throws: The errors of ``TaskQueue/waitUntilIdle()``, also if a handler of any of the queues
  ///   makes the call (``TaskQueueError/Code/waitsForItself``).
  public func waitUntilIdle() async throws {
    for queue in queues { try queue.core.checkCanWaitUntilIdle() }
    var areIdle = false
    while !areIdle {
      // Read the count first. If it is still the same at the end, no work has started in between.
      let count = workCount
      let isQuiet = queues.allSatisfy { !$0.core.hasWorkUnderWay }
      for queue in queues { try await queue.waitUntilIdle() }
      // While one queue performed a task, the task's handler may have added tasks to another queue
      // that was already idle.
      areIdle = isQuiet && count == workCount
    }
  }

  /// The number of attempts that all queues have started, plus the number of abandoned tasks.
  ///
  /// A task may be abandoned without an attempt, so both are counted.
  private var workCount: Int {
    queues.reduce(0) { count, queue in
      count + queue.core.observers.statistics.withLock { $0.workCount }
    }
  }

  /// Pauses all queues, as ``TaskQueue/pause()`` does.
  public func pause() async {
    await forEach { await $0.pause() }
  }

  /// Undoes ``pause()`` for all queues, including those that were paused by ``TaskQueue/pause()``.
  public func resume() async {
    await forEach { await $0.resume() }
  }

  /// Pauses all queues of the group, in every process, as ``TaskQueue/pause(durability:)`` does.
  ///
  /// This does not pause queues that are added later.
  ///
  /// - Parameter durability: the failures that the pauses survive once the call has returned.
  /// - Throws: The same errors as ``TaskQueue/pause(durability:)``. By then, some queues may be
  ///   paused.
  public func pause(durability: Durability) async throws {
    for queue in queues { try await queue.pause(durability: durability) }
  }

  /// Undoes ``pause(durability:)`` for all queues, including those that were paused by
  /// ``TaskQueue/pause(durability:)``.
  ///
  /// - Parameter durability: the failures that the end of the pauses survives once the call has
  ///   returned.
  /// - Throws: The same errors as ``TaskQueue/resume(durability:)``. By then, some queues may have
  ///   been resumed.
  public func resume(durability: Durability) async throws {
    for queue in queues { try await queue.resume(durability: durability) }
  }

  /// Shuts all queues down, as ``TaskQueue/shutDown(within:)`` does.
  ///
  /// No more queues can be added, and ``run()`` returns.
  ///
  /// Without a limit, a call from a handler of any of the queues, or from a Swift task that the
  /// handler started, returns at once, as ``beginShutDown(within:)`` does. Otherwise, the handler
  /// would wait for its own end.
  ///
  /// - Parameter limit: how long attempts may continue; by default until they end.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown(within: limit)
    if limit == nil, queues.contains(where: { $0.core.dispatch.callingTask != nil }) { return }
    await forEach { await $0.shutDown(within: limit) }
  }

  /// Starts a shutdown as ``shutDown(within:)`` does, without waiting.
  ///
  /// - Parameter limit: how long attempts may continue; by default until they end.
  public func beginShutDown(within limit: Duration? = nil) {
    let queues = state.withLock { state in
      state.isShutDown = true
      state.run?.finish()
      return state.sortedQueues
    }
    for queue in queues { queue.beginShutDown(within: limit) }
  }

  private func forEach(_ body: @Sendable @escaping (TaskQueue) async -> Void) async {
    await withDiscardingTaskGroup { group in
      for queue in queues { group.addTask { await body(queue) } }
    }
  }
}

extension QueueCore {
  /// Whether the queue performs attempts, carries out commands, or has results that are not stored.
  fileprivate var hasWorkUnderWay: Bool {
    dispatch.machine.withLock {
      $0.performing > 0 || !$0.commandsUnderWay.isEmpty || !$0.outbox.isEmpty
    }
  }
}
