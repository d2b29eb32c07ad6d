import SystemFoundation

/// Decides what a running queue does next, without a clock, a lock or suspension.
///
/// Workers ask the machine for steps. At most one call that claims tasks from the store is in
/// flight. A claim asks for as many tasks as there are idle workers: for several if the store is
/// slow, and for one if the store is fast. If the store supports it, a claim also prefetches tasks
/// (``Prefetch``). The result of an attempt waits in the outbox until it is stored.
struct WorkMachine: Sendable {
  private(set) var mode: Mode?
  /// Whether the queue is paused, by a caller or by its store.
  private(set) var isPaused = false
  /// Whether the queue is paused by a pause that its store contains.
  private(set) var isPausedByStore = false
  private var isPausedByCaller = false
  private(set) var isShutDown = false
  var destruction = Destruction.none
  private(set) var attemptCount = 0
  private(set) var failure: TaskQueueError?
  /// The error with which the last run ended or failed to open the store; `nil` if there is none,
  /// or if a new run has begun since.
  var lastFailure: (any Error)?
  private(set) var wasCancelled = false

  private var lastCutoff = Date.distantPast
  /// Whether the run is about to end, and no attempt starts.
  private(set) var isStopping = false
  /// Whether the next claimed tasks start even if the queue is paused.
  ///
  /// This is set when claimed tasks are released for a pause, until an attempt begins. So a queue
  /// that is paused again and again still makes progress. The next claim asks only for as many
  /// tasks as there are idle workers.
  var guaranteesProgress = false
  /// The claimed tasks that have not started, in reverse order: the last one starts first.
  var ready: [ClaimedTask] = []
  /// When the leases of the ready tasks expire, by the queue's stopwatch; `nil` for never.
  private var readyUntil: Duration?
  /// The queue's stopwatch time at, or shortly before, the last extension of the leases.
  var leasesExtended = Duration.zero
  /// The leases of claimed tasks that have not started, and are being released.
  var beingReleased: Set<Lease> = []
  var outbox: PendingResults
  var concurrencyLimits = ConcurrencyLimits()
  var claims = ClaimState()
  var prefetch = Prefetch(batch: 0)
  /// The commands that are being carried out, for tasks that the queue no longer leases.
  var commandsUnderWay: [PendingCommand] = []
  /// Whether the last claim of a pass found nothing, and no task has become available since.
  private var isExhausted = false
  /// The names whose parked tasks the next claim makes available.
  var toUnpark = ParkedNames()
  /// The number of idle workers.
  private(set) var idle: Int
  /// The attempt that each worker makes; `nil` for an idle worker.
  var attempts: [Attempt?]
  private var lastAttempt: AttemptNumber = 0
  /// The conditions that the current attempts require; an attempt without conditions has no entry.
  private(set) var requiredConditions: [AttemptNumber: Set<TaskCondition>] = [:]
  /// The commands for tasks that the queue leases, but no worker performs.
  var pendingCommands: [TaskID: PendingCommand] = [:]
  /// The tasks whose commands could not be carried out, and must be retried.
  var failedCommands: [TaskID] = []
  /// Whether all attempts must be cancelled, because the time for the run or for a graceful
  /// shutdown is up.
  private(set) var cutsShort = false

  init(workers: Int, maxUnsettled: Int = 1024) {
    outbox = PendingResults(capacity: maxUnsettled)
    idle = workers
    attempts = Array(repeating: nil, count: workers)
  }

  // MARK: Life cycle

  /// Checks that a run can begin.
  ///
  /// - Throws: The reason why no run can begin now.
  func checkCanBegin() throws(TaskQueueError) {
    guard !isShutDown else {
      throw TaskQueueError(
        .shutDown,
        "the queue was shut down and performs no more tasks; make a new one"
      )
    }
    guard self.mode == nil else {
      throw TaskQueueError(
        .alreadyRunning,
        "the queue is already running; wait for that run to end, or cancel it"
      )
    }
  }

  /// Begins a run.
  ///
  /// - Parameters:
  ///   - mode: When the run ends.
  ///   - names: The names that have a handler.
  ///   - claimBatch: The maximum number of tasks per claim; 0 to claim no task before a worker is
  ///     idle.
  mutating func begin(_ mode: Mode, names: some Sequence<String>, claimBatch: Int = 0) {
    self.mode = mode
    prefetch = Prefetch(batch: claimBatch)
    failure = nil
    isStopping = false
    wasCancelled = false
    cutsShort = false
    isExhausted = false
    toUnpark = ParkedNames(names: toUnpark.names.union(names), others: true)
    attemptCount = 0
  }

  /// Ends the run, when all its workers have ended.
  mutating func end() {
    lastFailure = failure
    // While the queue is paused, no claim is needed to know that it is idle.
    if isPaused { claims.skip() }
    mode = nil
    // The next run has its own time limit, but a shutdown stays.
    if !isShutDown { cutsShort = false }
    pendingCommands = pendingCommands.filter { id, _ in commandOutlastsRun(for: id) }
  }

  /// Returns the cutoff of a pass that begins now.
  ///
  /// The pass performs the tasks that are available at the cutoff. The cutoff is later than that of
  /// the last pass even if the clock stands still: the retries that the last pass left are due
  /// after its cutoff. If the clock was set back by more than a second, the cutoff is `now`.
  mutating func nextCutoff(now: Date) -> Date {
    let cutoff = now < lastCutoff - 1 ? now : max(now, lastCutoff.nextStorable)
    lastCutoff = cutoff
    return cutoff
  }

  /// Sets the cutoff of a pass to `now` if the clock was set back by more than a second.
  ///
  /// So the pass doesn't perform tasks that are available only by the clock's earlier, wrong date.
  mutating func moveCutoffBack(to now: Date) {
    guard case .pass(let cutoff) = mode, now < cutoff - 1 else { return }
    mode = .pass(cutoff: now)
    lastCutoff = now
  }

  mutating func cancel() {
    isStopping = true
    wasCancelled = true
  }

  mutating func shutDown() {
    isShutDown = true
    isStopping = true
  }

  /// Shuts down, and requires all attempts to be cancelled, because their time to end is up.
  mutating func cutShort() {
    shutDown()
    cutsShort = true
  }

  /// Stops the run, and requires all attempts to be cancelled, because the time for the run is up.
  mutating func endPass() {
    isStopping = true
    cutsShort = true
  }

  mutating func setPaused(_ isPaused: Bool) {
    isPausedByCaller = isPaused
    self.isPaused = isPaused || isPausedByStore
  }

  /// Sets whether the queue is paused by its store, and returns whether this is new.
  mutating func setPausedByStore(_ isPaused: Bool) -> Bool {
    defer { isPausedByStore = isPaused }
    self.isPaused = isPaused || isPausedByCaller
    return isPaused != isPausedByStore
  }

  /// Stops the run because the store failed.
  ///
  /// Settlements stay in the outbox for a later run. A claim counts as in flight until it has
  /// returned, because it may lease tasks.
  mutating func fail(_ error: TaskQueueError) {
    isStopping = true
    failure = failure ?? error
  }

  // MARK: Steps of a worker

  /// Returns what a worker does next.
  ///
  /// - Parameters:
  ///   - worker: The number of the worker.
  ///   - wasWoken: Whether a signal has woken the worker. If the worker then starts a task that was
  ///     already claimed, it must wake another one: the signal may also have been for a new task in
  ///     the store.
  ///   - time: Returns the time on the queue's stopwatch.
  /// - Returns: The next step.
  mutating func next(
    for worker: Int,
    wasWoken: Bool = false,
    at time: () -> Duration
  ) -> Step {
    if isStopping { return .stop }
    if isPaused, !guaranteesProgress || ready.isEmpty {
      // The workers of a pass stop only when all are idle. If the queue is resumed before, all of
      // them perform the tasks that are then claimed.
      guard mode != .untilStopped, performing == 0, !claims.isInFlight else { return .wait }
      isStopping = true
      return .stop
    }
    guard outbox.requestCapacity() else { return .wait }
    // The leases of the ready tasks have expired: the process was suspended, or the store took too
    // long to answer.
    if let readyUntil, !ready.isEmpty, time() >= readyUntil {
      idle -= 1
      return .requeue(takeUnstarted())
    }
    if let task = takeReady() { return begin(task, for: worker, wakesAnother: wasWoken) }
    if claims.isInFlight {
      claims.noteWaitingWorker()
      return .wait
    }
    if isExhausted {
      // Storing the end of an attempt may make another task available.
      guard performing == 0, outbox.noteWaitingUnlessEmpty() else { return .wait }
      isStopping = true
      return .stop
    }
    claims.begin()
    defer { toUnpark = ParkedNames() }
    let limit = guaranteesProgress ? idle : prefetch.limit(idle: idle, workers: attempts.count)
    return .claim(limit: limit, unparking: toUnpark)
  }

  /// Makes a worker busy with a task: it makes an attempt, or carries out the command for the task.
  private mutating func begin(_ task: ClaimedTask, for worker: Int, wakesAnother: Bool) -> Step {
    idle -= 1
    if !isPaused || ready.isEmpty { guaranteesProgress = false }
    lastAttempt += 1
    if task.record.hasPrerequisites { recordConditions(of: task.record) }
    let pending =
      pendingCommands.isEmpty ? nil : pendingCommands.removeValue(forKey: task.record.id)
    let command = pending?.command ?? task.record.command.map(TaskCommand.init)
    attempts[worker] = Attempt(
      lease: task.lease,
      name: task.record.name,
      number: lastAttempt,
      command: command,
      isOver: command != nil
    )
    let wakesAnother = idle > 0 && (wakesAnother || claims.storeHasMore || !ready.isEmpty)
    if let command { return .carryOut(command, task, wakesAnother: wakesAnother) }
    return .perform(task, lastAttempt, wakesAnother: wakesAnother)
  }

  private mutating func recordConditions(of record: TaskRecord) {
    let conditions = record.conditions
    if !conditions.isEmpty { requiredConditions[lastAttempt] = conditions }
  }

  /// Makes a worker idle after the step ``Step/requeue(_:)``.
  mutating func endReleaseByWorker() { idle += 1 }

  /// Accepts the result of a claim.
  ///
  /// - Parameters:
  ///   - claim: The claim.
  ///   - now: The current date.
  ///   - end: When the tasks' leases expire, by the queue's stopwatch; `nil` if they do not.
  /// - Returns: Whether a worker has something to do now.
  mutating func receive(_ claim: Claim, now: Date, until end: Duration? = nil) -> Bool {
    // A store that returns no tasks has none, whatever date it returns.
    let hasMore = !claim.tasks.isEmpty && claim.nextDate.map { $0 <= now } ?? false
    claims.end(hasTasks: !claim.tasks.isEmpty, hasMore: hasMore, cutoff: cutoff)
    ready = claim.tasks
    readyUntil = end
    prefetch.checkForInterrupted(in: ready)
    if ready.count > 1 { ready.reverse() }
    concurrencyLimits.addLeased(claim.tasks)
    if case .pass = mode, ready.isEmpty, !claims.storeHasMore {
      isExhausted = true
      return true
    }
    return claims.storeHasMore || !ready.isEmpty
  }

  /// Records that a task may have become available.
  mutating func workArrived() {
    isExhausted = false
    claims.workArrived()
  }

  /// Makes a worker idle after its attempt, whose settlement is stored or in the outbox.
  ///
  /// - Returns: The command that arrived for the task while the settlement was being stored.
  @discardableResult
  mutating func freeWorker(_ worker: Int, countsAsAttempt: Bool) -> PendingCommand? {
    guard let attempt = attempts[worker].take() else {
      preconditionFailure("worker \(worker) has ended an attempt that it had not begun")
    }
    attemptCount += countsAsAttempt ? 1 : 0
    idle += 1
    if !requiredConditions.isEmpty { requiredConditions[attempt.number] = nil }
    concurrencyLimits.removeLeased(named: attempt.name)
    // The number of leased tasks with this name may be below the name's limit again.
    workArrived()
    // If the store failed, the settlement is in the outbox, and the command stays pending.
    guard !pendingCommands.isEmpty, !outbox.isWaiting(attempt.id) else { return nil }
    return takeCommand(for: attempt.id)
  }
}

/// The modes of a run, and the steps of a worker.
extension WorkMachine {
  enum Mode: Sendable, Equatable {
    /// Perform tasks until told to stop.
    case untilStopped
    /// Perform the tasks that are available at the cutoff, and then stop.
    case pass(cutoff: Date)
  }

  enum Step: Sendable {
    case perform(ClaimedTask, AttemptNumber, wakesAnother: Bool)
    /// Carry out a command for the task, instead of performing it.
    case carryOut(TaskCommand, ClaimedTask, wakesAnother: Bool)
    case claim(limit: Int, unparking: ParkedNames)
    /// Release these tasks, whose claim has expired, and then call ``endReleaseByWorker()``.
    case requeue([ClaimedTask])
    case wait
    case stop
  }

  /// Names whose parked tasks may be performed now.
  struct ParkedNames: Sendable, Equatable {
    var names: Set<String> = []
    /// Whether parked tasks may also be performed if their name has no handler of its own.
    var others = false
    /// Whether parked tasks of any name may be performed if an older version of the program has
    /// parked them.
    var ofOlderVersions = false

    var isEmpty: Bool { names.isEmpty && !others && !ofOlderVersions }
  }
}

/// Makes parked tasks available when handlers are registered.
extension WorkMachine {
  /// Records that names have a handler now, so that their tasks may be performed.
  ///
  /// - Parameters:
  ///   - names: The names.
  ///   - areLimited: Whether the handler limits how many tasks it performs at the same time.
  mutating func registerHandlers(for names: [String], areLimited: Bool = false) {
    toUnpark.names.formUnion(names)
    workArrived()
    guard areLimited else { return }
    // Tasks that were claimed before count towards the limit, too.
    for name in names {
      let count =
        attempts.count { $0?.name == name } + ready.count { $0.record.name == name }
      concurrencyLimits.add(name, leasedCount: count)
    }
  }

  /// Records that a fallback handler performs the tasks whose name has no handler of its own.
  mutating func registerFallback() {
    toUnpark.others = true
    workArrived()
  }
}

/// Tells whether a queue is idle or has ended.
extension WorkMachine {
  /// The date by which a task must be available to be performed by the current pass; `nil` if the
  /// run is not a pass.
  var cutoff: Date? {
    guard case .pass(let cutoff) = mode else { return nil }
    return cutoff
  }

  /// Whether the queue will perform no more tasks.
  var hasEnded: Bool { isShutDown && mode == nil }

  /// Whether the queue is destroyed, with its tasks.
  enum Destruction: Sendable {
    case none
    /// The queue is being destroyed. Whether its tasks will be removed is not known yet.
    case underWay
    case done
  }

  /// The error for callers that wait for a task or for an idle queue; `nil` while they must wait.
  var reasonToFailWaiters: TaskQueueError? {
    guard hasEnded else { return nil }
    return switch destruction {
    case .none: .waitedForShutDownQueue
    case .underWay: nil
    case .done: .waitedForDestroyedQueue
    }
  }

  enum Idleness: Sendable {
    /// Something is performed, claimed or being stored.
    case busy
    /// Nothing is in progress. Only a claim can tell whether a task is available.
    case unknown
    /// Nothing is in progress, and no task can start.
    case idle
    /// The queue was shut down or destroyed, and performs no more tasks.
    case ended(TaskQueueError)
    /// The run has ended, because its store has failed.
    case failed(TaskQueueError)
  }

  /// Returns whether the queue is idle, as far as its claims show.
  ///
  /// - Parameters:
  ///   - claim: The number of a claim. Only a later claim shows that no task is available.
  ///   - date: The date by which tasks must be available to count. A claim that looked only for
  ///     tasks up to an earlier date shows nothing.
  /// - Returns: Whether the queue is idle.
  func idleness(afterClaim claim: Int, at date: Date) -> Idleness {
    if hasEnded { return reasonToFailWaiters.map { .ended($0) } ?? .busy }
    if mode == nil, let failure { return .failed(failure) }
    guard performing == 0, !claims.isInFlight, ready.isEmpty, beingReleased.isEmpty,
      commandsUnderWay.isEmpty,
      outbox.isEmpty
    else { return .busy }
    if isPaused, mode != nil { return .idle }
    guard let last = claims.emptyClaim, last.number > claim,
      last.cutoff.map({ $0 >= date }) ?? true
    else { return .unknown }
    return .idle
  }
}

extension TaskQueueError {
  fileprivate static let waitedForShutDownQueue = TaskQueueError(
    .shutDown,
    "the queue was shut down before the task ended; the task remains stored"
  )
  fileprivate static let waitedForDestroyedQueue = TaskQueueError(
    .destroyed,
    "the queue was destroyed, with its tasks"
  )
}

/// Counts the leased tasks for each name that has a limit on concurrent tasks.
struct ConcurrencyLimits: Sendable {
  /// The names that have a limit.
  private var names: Set<String> = []
  /// The number of leased tasks with each name; a name without leased tasks has no entry.
  private var leasedCounts: [String: Int] = [:]
  /// The last result of `remainingCounts(within:version:)`.
  ///
  /// The result is cached because there may be many names, of which few change between claims.
  private var lastRemaining: [String: Int] = [:]
  private var lastVersion: Int?
  /// The names whose count has changed since the last result.
  private var changedNames: Set<String> = []

  /// Returns how many more tasks with each name may be claimed without exceeding the name's limit.
  ///
  /// If the limits differ from those of the previous call, the version must also differ.
  mutating func remainingCounts(within limits: [String: Int], version: Int) -> [String: Int] {
    guard !names.isEmpty else { return limits }
    if lastVersion != version {
      lastVersion = version
      lastRemaining = limits
      changedNames = Set(leasedCounts.keys)
    }
    for name in changedNames {
      lastRemaining[name] = limits[name, default: 0] - leasedCounts[name, default: 0]
    }
    changedNames.removeAll(keepingCapacity: true)
    return lastRemaining
  }

  /// Starts counting the tasks with a name, of which `leasedCount` are already leased.
  mutating func add(_ name: String, leasedCount: Int) {
    names.insert(name)
    leasedCounts[name] = leasedCount > 0 ? leasedCount : nil
    changedNames.insert(name)
  }

  /// Counts tasks that were claimed.
  mutating func addLeased(_ tasks: [ClaimedTask]) {
    guard !names.isEmpty else { return }
    for task in tasks where names.contains(task.record.name) {
      leasedCounts[task.record.name, default: 0] += 1
      changedNames.insert(task.record.name)
    }
  }

  /// Records that a task with this name is no longer leased.
  mutating func removeLeased(named name: String) {
    guard !leasedCounts.isEmpty, let count = leasedCounts[name] else { return }
    leasedCounts[name] = count > 1 ? count - 1 : nil
    changedNames.insert(name)
  }
}
