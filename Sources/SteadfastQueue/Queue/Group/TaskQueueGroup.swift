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
/// Each queue uses the store as if it were alone: it performs, looks up, pauses and prunes only its
/// own tasks, and a unique key or an order key belongs to one queue. Two things cross the queues. A
/// task may wait for tasks of other queues (``TaskOptions/dependencies``), and a task's ID
/// identifies it in every queue. All queues share the values of an application
/// (``TaskQueue/setValue(_:named:durability:)``).
///
/// If the group is made without one of its queues, that queue's tasks stay in the store, and are
/// performed once the queue is added again. The queue with the name `"default"` has the tasks of a
/// ``TaskQueue`` that was alone on the store.
public final class TaskQueueGroup: Sendable {
  /// The name of the queue whose tasks are stored as if there were no group.
  private static let plainName = "default"

  /// The group's name, shown in error messages.
  public let name: String
  private let store: any Persistence
  private let configuration: TaskQueueConfiguration
  let clock: any WallClock
  private let prepare: @Sendable (TaskQueue) async -> Void
  private let members: GroupMembers
  let state = Mutex(State())

  struct State: Sendable {
    var queues: [String: TaskQueue] = [:]
    /// The names of queues that are being added.
    var coming: Set<String> = []
    var run: AsyncStream<TaskQueue>.Continuation?
    var isShutDown = false

    /// The queues in the order of their names.
    ///
    /// The group goes through them in this order, so that virtual time is reproducible.
    var sortedQueues: [TaskQueue] { queues.values.sorted { $0.name < $1.name } }
  }

  /// Makes a group without queues.
  ///
  /// Nothing is opened or performed yet.
  ///
  /// - Parameters:
  ///   - name: the group's name.
  ///   - persistence: the store of all queues; by default in memory.
  ///   - configuration: the configuration of each queue for which ``addQueue(_:configuration:)``
  ///     gives no other.
  ///   - clock: the clock of all queues.
  ///   - prepare: called with each queue that is added, for example to register the handlers that
  ///     all queues have.
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
  }

  // MARK: Queues

  /// Adds a queue.
  ///
  /// While the group runs, the queue runs at once.
  ///
  /// - Parameters:
  ///   - name: the queue's name, under which its tasks are stored: 1 to 255 bytes of UTF-8 without
  ///     control characters.
  ///   - configuration: how the queue performs its tasks; by default the group's configuration.
  /// - Returns: The queue, which the group also stores.
  /// - Throws: A ``TaskQueueError`` if the group has a queue of this name
  ///   (``TaskQueueError/Code/nameTaken``), the name is invalid, or the group was shut down.
  @discardableResult
  public func addQueue(
    _ name: String,
    configuration: TaskQueueConfiguration? = nil
  ) async throws -> TaskQueue {
    try reserve(name)
    let storedName = Self.storedName(ofQueue: name)
    let queue = TaskQueue(
      name: name,
      persistence: GroupStore(base: store, queue: storedName, members: members),
      configuration: configuration ?? self.configuration,
      clock: clock
    )
    await prepare(queue)
    members.add(queue.core, storedAs: storedName)
    let isShutDown = state.withLock { state in
      state.coming.remove(name)
      state.queues[name] = queue
      state.run?.yield(queue)
      return state.isShutDown
    }
    if isShutDown { queue.beginShutDown() }
    return queue
  }

  private func reserve(_ name: String) throws(TaskQueueError) {
    guard !name.isEmpty else {
      throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
    }
    try TaskQueueError.check(queue: name)
    let (isTaken, isShutDown) = state.withLock { state in
      let isTaken = state.queues[name] != nil || !state.coming.insert(name).inserted
      return (isTaken, state.isShutDown)
    }
    if isTaken {
      throw TaskQueueError(
        .nameTaken,
        "the group '\(self.name)' already has a queue named '\(name)'; get it with queue(named:)"
      )
    }
    guard isShutDown else { return }
    state.withLock { _ = $0.coming.remove(name) }
    throw shutDownError
  }

  var shutDownError: TaskQueueError {
    TaskQueueError(.shutDown, "the group '\(name)' was shut down; make a new one")
  }

  static func storedName(ofQueue name: String) -> String { name == plainName ? "" : name }
  static func name(ofStoredName name: String) -> String { name.isEmpty ? plainName : name }

  /// Returns the queue with a name.
  ///
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/unknownQueue`` if the group
  ///   has no queue of this name.
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

  /// Adds a task to a queue, as `enqueue` of the queue does.
  ///
  /// - Parameters:
  ///   - payload: the task's payload.
  ///   - name: the name of the queue.
  ///   - delay: how long the task waits before it is available.
  ///   - uniqueKey: a key, with which only one task of the queue is performed at a time; by default
  ///     the payload's own (``TaskPayload/uniqueKey``).
  ///   - options: how the task is performed; by default the options of its type.
  /// - Returns: The task.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/unknownQueue`` if the group
  ///   has no queue of this name; the same errors as the queue's `enqueue`.
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

  /// Returns the number of tasks of all queues that match a filter, by default unfinished tasks.
  ///
  /// This includes queues that are in the store, but not in the group. To count the tasks of one
  /// queue, set the filter's ``TaskFilter/queue``; an empty name means all queues.
  ///
  /// - Throws: The error that keeps the store from being opened or read.
  public func count(matching filter: TaskFilter = .unfinished) async throws -> Int {
    try await store.open()
    return try await store.count(matching: inStore(filter))
  }

  /// Returns tasks of all queues that match a filter, in the order of their IDs.
  ///
  /// This includes queues that are in the store, but not in the group. ``TaskRecord/queue`` is the
  /// name of a task's queue; for the queue `"default"` it is empty.
  ///
  /// - Parameters:
  ///   - filter: which tasks to return; by default those that have not ended.
  ///   - id: only tasks with greater IDs are returned.
  ///   - limit: the maximum number of tasks; by default all of them. A negative number means none.
  /// - Returns: The tasks.
  /// - Throws: The error that keeps the store from being opened or read.
  public func tasks(
    matching filter: TaskFilter = .unfinished,
    after id: TaskID? = nil,
    limit: Int? = nil
  ) async throws -> [TaskRecord] {
    try await store.open()
    let filter = inStore(filter)
    if let limit { return try await store.tasks(matching: filter, after: id, limit: max(0, limit)) }
    var found: [TaskRecord] = []
    let now = TaskIDGenerator.latest(before: clock.date)
    try await store.forEachPage(of: filter, after: id, tasksUpTo: now) { found += $0 }
    return found
  }

  private func inStore(_ filter: TaskFilter) -> TaskFilter {
    var filter = filter
    filter.queue = filter.queue.flatMap { $0.isEmpty ? nil : Self.storedName(ofQueue: $0) }
    return filter
  }

  /// Removes the tasks of all queues for good, with the storage behind them.
  ///
  /// It cancels the attempts under way, waits for them, and shuts the group down. Every later call
  /// throws. If the waiting is cancelled, the group is shut down, and its tasks stay.
  ///
  /// - Throws: A ``TaskQueueError`` if a handler of the group calls it
  ///   (``TaskQueueError/Code/waitsForItself``). `CancellationError` when the waiting is cancelled.
  ///   Any error of the store.
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
  /// Performs the tasks of all queues until it is cancelled or the group is shut down.
  ///
  /// Queues that are added later run, too. A queue that is shut down alone leaves the others
  /// running. If one queue fails, the others are cancelled.
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
            // The other queues go on.
          } catch {
            continuation.finish()
            throw error
          }
        }
      }
      // The sequence ends with the shutdown, or because of a cancellation.
      try Task.checkCancellation()
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

  /// Performs the tasks of all queues that are available now, and returns when they are done.
  ///
  /// Queues that are added later, and those that were shut down alone, are not included. If one
  /// queue fails, the others are cancelled.
  ///
  /// - Returns: The number of attempts in all queues.
  /// - Throws: The errors of ``TaskQueue/runAvailable()``.
  @discardableResult
  public func runAvailable() async throws -> Int {
    try await runPass { try await $0.runAvailable() }
  }

  /// Performs the available tasks of all queues that are expected to end in time.
  ///
  /// All queues run at the same time, as with ``TaskQueue/run(within:)``, each with its own workers
  /// and averages, but with one deadline. When it has passed, or the call is cancelled, attempts
  /// under way are cancelled and their tasks wait as before. Queues that are added later, and those
  /// that were shut down alone, are not included. If one queue fails, the others are cancelled.
  ///
  /// - Parameter budget: how long attempts may go on, measured from the call. With zero or less,
  ///   nothing is performed.
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

  /// Waits until every queue is idle, and none has added tasks to another one.
  ///
  /// - Throws: The errors of ``TaskQueue/waitUntilIdle()``, including the error for a call from a
  ///   handler of any of the queues (``TaskQueueError/Code/waitsForItself``).
  public func waitUntilIdle() async throws {
    for queue in queues { try queue.core.checkCanWaitUntilIdle() }
    var areIdle = false
    while !areIdle {
      // Read the count first: later work changes it, and earlier work is done or under way.
      let count = workCount
      let isQuiet = queues.allSatisfy { !$0.core.hasWorkUnderWay }
      for queue in queues { try await queue.waitUntilIdle() }
      // While one queue performs a task, it may add tasks to another queue that was idle already.
      areIdle = isQuiet && count == workCount
    }
  }

  /// The number of attempts that all queues have started since they were made, plus the number of
  /// abandoned tasks, which may have had no attempt.
  private var workCount: Int {
    queues.reduce(0) { count, queue in
      let statistics = queue.core.observers.statistics.withLock { $0.statistics }
      return count + statistics.attempts + statistics.abandoned
    }
  }

  /// Pauses all queues, as ``TaskQueue/pause()`` does.
  public func pause() async {
    await forEach { await $0.pause() }
  }

  /// Undoes ``pause()`` for all queues, also for those that were paused alone.
  public func resume() async {
    await forEach { await $0.resume() }
  }

  /// Pauses all queues of the group, in every process, as ``TaskQueue/pause(durability:)`` does.
  ///
  /// A queue that is added later is not paused, unless its own pause is stored already.
  ///
  /// - Parameter durability: what the pauses survive once the call has returned.
  /// - Throws: The same errors as for one queue. Some queues may be paused by then.
  public func pause(durability: Durability) async throws {
    for queue in queues { try await queue.pause(durability: durability) }
  }

  /// Undoes ``pause(durability:)`` for all queues, also for those that were paused alone.
  ///
  /// - Parameter durability: what the end of the pauses survives once the call has returned.
  /// - Throws: The same errors as for one queue. Some queues may have been resumed by then.
  public func resume(durability: Durability) async throws {
    for queue in queues { try await queue.resume(durability: durability) }
  }

  /// Shuts all queues down, as ``TaskQueue/shutDown(within:)`` does.
  ///
  /// No more queues can be added. ``run()`` then returns.
  ///
  /// Without a limit, a call from a handler of any of the queues, or from something that the
  /// handler started, returns at once, as ``beginShutDown(within:)`` does: two handlers that call
  /// it would wait for each other.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown(within: limit)
    if limit == nil, queues.contains(where: { $0.core.dispatch.callingTask != nil }) { return }
    await forEach { await $0.shutDown(within: limit) }
  }

  /// Starts a shutdown as ``shutDown(within:)`` does, without waiting.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end.
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
  /// Whether attempts or requests are under way, or ends of attempts are not stored yet.
  fileprivate var hasWorkUnderWay: Bool {
    dispatch.machine.withLock {
      $0.performing > 0 || !$0.commandsUnderWay.isEmpty || !$0.outbox.isEmpty
    }
  }
}
