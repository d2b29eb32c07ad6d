import SystemFoundation

/// Decides what a running queue does next: a value without a clock, a lock or suspension.
///
/// Workers ask the machine for steps. At most one claim is in flight. A claim asks for as many
/// tasks as there are idle workers: for several while the store is slow, and for a single one while
/// the store is fast. If the store supports it, a claim prefetches some more (``Prefetch``). The
/// end of an attempt waits in the outbox until the store has stored it.
struct WorkMachine: Sendable {
  private(set) var mode: Mode?
  /// Whether the queue is paused, by a caller or by its store.
  private(set) var isPaused = false
  /// Whether a stored pause applies to every queue on the store.
  private(set) var isPausedByStore = false
  private var isPausedByCaller = false
  private(set) var isShutDown = false
  var destruction = Destruction.none
  private(set) var attemptCount = 0
  private(set) var failure: TaskQueueError?
  private(set) var wasCancelled = false

  private var lastCutoff = Date.distantPast
  /// Whether the run is about to end, and nothing more begins.
  private(set) var isStopping = false
  /// Whether claimed tasks were released for a pause, and no attempt has begun since.
  ///
  /// If so, the next claim asks only for as many tasks as there are idle workers, and these tasks
  /// start even during another pause. So a queue that is often paused still makes progress.
  var guaranteesProgress = false
  var ready: [ClaimedTask] = []  // the next one last
  /// When the claim of `ready` expires unless it is extended, by the queue's stopwatch; `nil` for
  /// never.
  private var readyUntil: Duration?
  /// A lower bound of the time of the last extension of the leases, by the queue's stopwatch.
  var leasesExtended = Duration.zero
  /// The leases of claimed tasks that were not begun, and are being released.
  var beingReleased: Set<Lease> = []
  var outbox: PendingResults
  var concurrencyLimits = ConcurrencyLimits()
  var claims = ClaimState()
  var prefetch = Prefetch(batch: 0)
  /// The requests that are being carried out.
  ///
  /// The queue no longer leases their tasks.
  var commandsUnderWay: [PendingCommand] = []
  /// Whether the last claim of a pass found nothing, and nothing has changed since.
  private var isExhausted = false
  var toUnpark = ParkedNames()
  private(set) var idle: Int
  /// The attempt of each worker, if it performs one.
  var attempts: [Attempt?]
  private var lastAttempt: AttemptNumber = 0
  /// The conditions that the attempts under way require; an attempt without any has no entry.
  private(set) var requiredConditions: [AttemptNumber: Set<TaskCondition>] = [:]
  /// The requests for tasks that the queue leases, but no worker performs.
  var pendingCommands: [TaskID: PendingCommand] = [:]
  /// The tasks whose requests could not be carried out, and are to be retried.
  var failedCommands: [TaskID] = []
  /// Whether attempts under way are to be cut short, because the run's budget, or the limit of a
  /// shutdown, is up.
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

  /// Begins a run, after ``checkCanBegin()``, while handlers are registered for these names.
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
    // A pass that ends because of a pause has nothing left to perform.
    if isPaused { claims.skip() }
    mode = nil
    // Only the run's time was up, not the queue's.
    if !isShutDown { cutsShort = false }
    pendingCommands = pendingCommands.filter { id, _ in commandOutlastsRun(for: id) }
  }

  /// Returns the cutoff of a pass that begins now.
  ///
  /// The cutoff is later than that of the last pass even if the clock stands still, so that
  /// immediate retries are performed. If the clock was set back by more than a second, the cutoff
  /// is `now`.
  mutating func nextCutoff(now: Date) -> Date {
    let cutoff = now < lastCutoff - 1 ? now : max(now, lastCutoff.nextStorable)
    lastCutoff = cutoff
    return cutoff
  }

  /// Moves the cutoff of a pass back when the clock was set back by more than a second.
  ///
  /// The pass then doesn't perform tasks that were available only by the clock's wrong date.
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

  /// Cuts attempts short, because the time to shut down gracefully is up.
  mutating func cutShort() {
    shutDown()
    cutsShort = true
  }

  /// Cuts attempts short and ends the run, because the time of the run is up.
  mutating func endPass() {
    isStopping = true
    cutsShort = true
  }

  mutating func setPaused(_ isPaused: Bool) {
    isPausedByCaller = isPaused
    self.isPaused = isPaused || isPausedByStore
  }

  /// Sets whether a stored pause applies to every queue on the store.
  ///
  /// - Returns: Whether the stored pause began or ended with this call.
  mutating func setPausedByStore(_ isPaused: Bool) -> Bool {
    defer { isPausedByStore = isPaused }
    self.isPaused = isPaused || isPausedByCaller
    return isPaused != isPausedByStore
  }

  /// Stops all workers, because the store failed.
  ///
  /// Settlements stay in the outbox for a later run. A claim stays in flight until it has returned,
  /// because it may have leased tasks.
  mutating func fail(_ error: TaskQueueError) {
    isStopping = true
    failure = failure ?? error
  }

  // MARK: Steps of a worker

  /// Returns what a worker does next.
  ///
  /// One signal may wake a worker for several reasons at once. So if a worker that was woken starts
  /// a task that was claimed before, another worker has to look at the store.
  ///
  /// - Parameters:
  ///   - worker: The number of the worker.
  ///   - wasWoken: Whether a signal has woken it.
  ///   - time: Returns the time on the queue's stopwatch.
  /// - Returns: The step.
  mutating func next(
    for worker: Int,
    wasWoken: Bool = false,
    at time: () -> Duration
  ) -> Step {
    if isStopping { return .stop }
    if isPaused, !guaranteesProgress || ready.isEmpty {
      // The workers of a pass stop together, because tasks claimed after a resume are for all of
      // them.
      guard mode != .untilStopped, performing == 0, !claims.isInFlight else { return .wait }
      isStopping = true
      return .stop
    }
    guard outbox.requestCapacity() else { return .wait }
    // The claim of the ready tasks has expired: the process was suspended, or the store was slow to
    // answer.
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

  /// Starts the next attempt, or carries out the request for its task.
  private mutating func begin(_ task: ClaimedTask, for worker: Int, wakesAnother: Bool) -> Step {
    idle -= 1
    if !isPaused || ready.isEmpty { guaranteesProgress = false }
    lastAttempt += 1
    if task.record.hasPrerequisites { recordConditions(of: task.record) }
    let asked = pendingCommands.isEmpty ? nil : pendingCommands.removeValue(forKey: task.record.id)
    let command = asked?.command
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

  /// Makes a worker idle that has released tasks whose claim had expired (``Step/requeue(_:)``).
  mutating func endReleaseByWorker() { idle += 1 }

  /// Accepts the result of a claim.
  ///
  /// - Parameters:
  ///   - claim: The claim.
  ///   - now: The date now.
  ///   - end: When the claim expires, by the queue's stopwatch; `nil` if it does not.
  /// - Returns: Whether there is a next step at once.
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
  /// - Returns: The request that arrived for the task while the settlement was being stored.
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
    // If the store failed, the settlement is in the outbox, and the request waits with it.
    guard !pendingCommands.isEmpty, !outbox.isWaiting(attempt.id) else { return nil }
    return takeCommand(for: attempt.id)
  }
}

/// The modes of a run, and the steps of a worker.
extension WorkMachine {
  enum Mode: Sendable, Equatable {
    /// Perform tasks until told to stop.
    case untilStopped
    /// Perform tasks until none is left that was available at the cutoff.
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
    /// Whether the tasks of names without a handler of their own may be performed, too.
    var others = false

    var isEmpty: Bool { names.isEmpty && !others }
  }
}

/// Handlers that are registered, and the parked tasks that they make available.
extension WorkMachine {
  /// Registers names that have a handler now: their tasks may be performed.
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

  /// Registers a fallback handler, for all names without a handler of their own.
  mutating func registerFallback() {
    toUnpark.others = true
    workArrived()
  }
}

/// Whether a queue has anything to do.
extension WorkMachine {
  /// In a pass, the date that decides what is available.
  var cutoff: Date? {
    guard case .pass(let cutoff) = mode else { return nil }
    return cutoff
  }

  /// Whether the queue will perform no more tasks.
  var hasEnded: Bool { isShutDown && mode == nil }

  /// Whether the queue is destroyed, with its tasks.
  enum Destruction: Sendable {
    case none
    /// The fate of its tasks is not known yet.
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
    /// Nothing is under way. Only a claim can tell whether a task is available.
    case unknown
    /// Nothing is under way, and nothing may begin.
    case idle
    /// The queue was shut down or destroyed, and performs no more tasks.
    case ended(TaskQueueError)
    /// The run has ended, because its store has failed.
    case failed(TaskQueueError)
  }

  /// Returns whether the queue is idle.
  ///
  /// That the store has no available task must be known from a claim after `claim`. If that claim
  /// belongs to a pass, the pass's cutoff must not be before `date`.
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

/// Counts the leased tasks of each name that has a limit on concurrent tasks.
struct ConcurrencyLimits: Sendable {
  private var names: Set<String> = []
  /// The number of leased tasks of each name; a name without any has no entry.
  private var leasedCounts: [String: Int] = [:]
  /// The last result of `remainingCounts(within:version:)`.
  ///
  /// It is cached because there may be many names, and little changes from one claim to the next.
  private var lastRemaining: [String: Int] = [:]
  private var lastVersion: Int?
  /// The names whose count has changed since the last result.
  private var changedNames: Set<String> = []

  /// Returns how many more tasks of each name may be claimed within its limit.
  ///
  /// If the limits differ from those of the last call, the version must differ, too.
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

  /// Starts to limit a name, which has `leasedCount` leased tasks already.
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

  /// Counts a task of this name that is no longer leased.
  mutating func removeLeased(named name: String) {
    guard !leasedCounts.isEmpty, let count = leasedCounts[name] else { return }
    leasedCounts[name] = count > 1 ? count - 1 : nil
    changedNames.insert(name)
  }
}
