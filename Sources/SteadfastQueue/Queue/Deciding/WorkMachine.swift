#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a running queue does next: a value without clock, lock or suspension.
///
/// Workers ask it for steps. At most one claim is in flight; it asks for as many tasks as there
/// are idle workers, so that claims gather by themselves while a store is slow and are single
/// while it is fast. What ends an attempt waits in the outbox until it is kept.
struct WorkMachine: Sendable {
  enum Mode: Sendable, Equatable {
    /// Until told to stop.
    case untilStopped
    /// Until nothing is left that was available at the horizon.
    case pass(horizon: Date)
  }

  enum Step: Sendable {
    case perform(ClaimedTask, AttemptNumber, wakesAnother: Bool)
    /// Do to the task what was asked of it, instead of performing it.
    case obey(Directive, ClaimedTask, wakesAnother: Bool)
    case claim(limit: Int, unparking: ParkedNames)
    case wait
    case stop
  }

  private(set) var mode: Mode?
  private(set) var isPaused = false
  private(set) var isShutDown = false
  private(set) var attemptCount = 0
  private(set) var failure: TaskQueueError?
  private(set) var wasCancelled = false

  private var lastHorizon = Date.distantPast
  private var isStopping = false
  /// What was claimed was put back for a pause, and nothing has begun since: what is claimed next is
  /// begun, whatever pause comes meanwhile, so that many pauses don't keep the queue from getting on.
  private var owesAttempt = false
  var ready: [ClaimedTask] = []  // the next one last
  /// What was claimed and not begun, and is being put back.
  var returning: Set<Lease> = []
  var outbox: Outbox
  var limitedNames = LimitedNames()
  private(set) var isClaiming = false
  /// How many claims have been made, with the one in flight.
  private(set) var claimCount = 0
  /// The last look at the store, if it found nothing and nothing has been heard of since.
  private(set) var emptyLook: Look?
  /// Something may have become available that the claim in flight has not seen.
  private var isClaimStale = false
  /// How much of what was asked of tasks is being done, now that their ends are kept.
  private(set) var obeying = 0
  /// Something may have become available too late for the claim in flight.
  private var hasNewsForClaim = false
  private var storeHasMore = false
  /// The last claim of a pass found nothing, and nothing has changed since.
  private var isExhausted = false
  private var toUnpark = ParkedNames()
  private var idle: Int
  /// What each worker performs.
  var attempts: [Attempt?]
  private var lastAttempt: AttemptNumber = 0
  /// What was asked of tasks that are held, but that no worker performs now.
  var requests: [TaskID: Directive] = [:]
  /// Attempts under way are to be cut short, because the time to shut down is up.
  private(set) var cutsShort = false

  init(workers: Int, maxUnsettled: Int = 1024) {
    outbox = Outbox(capacity: maxUnsettled)
    idle = workers
    attempts = Array(repeating: nil, count: workers)
  }

  /// How many attempts are under way.
  var performing: Int { attempts.count - idle }

  // MARK: Life cycle

  /// - Throws: why no run can begin now.
  func checkCanBegin() throws(TaskQueueError) {
    guard !isShutDown else {
      throw TaskQueueError(
        .shutDown,
        "the queue was shut down and performs nothing any more; make a new one"
      )
    }
    guard self.mode == nil else {
      throw TaskQueueError(
        .alreadyRunning,
        "the queue runs already; wait for that run to end, or cancel it"
      )
    }
  }

  /// A run begins that can begin, with handlers registered for these names.
  mutating func begin(_ mode: Mode, names: some Sequence<String>) {
    self.mode = mode
    failure = nil
    isStopping = false
    wasCancelled = false
    isExhausted = false
    toUnpark = ParkedNames(names: toUnpark.names.union(names), others: true)
    attemptCount = 0
  }

  /// The run has ended, and all its workers with it.
  mutating func end() {
    // A pass that ends because of a pause leaves nothing that it could do.
    if isPaused {
      claimCount += 1
      emptyLook = Look(claim: claimCount, horizon: nil)
    }
    mode = nil
    // Nothing is leased any more but what waits to be kept, and what a pause is putting back.
    requests = requests.filter { id, _ in outbox.isWaiting(id) || isReturning(id) }
  }

  /// In a pass, the date that decides what is available.
  var horizon: Date? {
    guard case .pass(let horizon) = mode else { return nil }
    return horizon
  }

  /// Whether no task will be performed any more.
  var hasEnded: Bool { isShutDown && mode == nil }

  /// The horizon of a pass that begins now: later than the last one's even if the clock stands
  /// still, so that what was to be tried again at once is; unless the clock was set back.
  mutating func nextHorizon(now: Date) -> Date {
    let horizon = now < lastHorizon - 1 ? now : max(now, lastHorizon.nextStorable)
    lastHorizon = horizon
    return horizon
  }

  /// A pass does not perform what is available only by the date that was left.
  mutating func dateWentBack(to now: Date) {
    guard case .pass(let horizon) = mode, now < horizon - 1 else { return }
    mode = .pass(horizon: now)
    lastHorizon = now
  }

  mutating func cancel() {
    isStopping = true
    wasCancelled = true
  }

  mutating func shutDown() {
    isShutDown = true
    isStopping = true
  }

  /// The time to shut down gracefully is up.
  mutating func cutShort() {
    shutDown()
    cutsShort = true
  }

  mutating func setPaused(_ isPaused: Bool) { self.isPaused = isPaused }

  /// Takes what was claimed and is not to be begun, because of a pause.
  mutating func takeHeldBack() -> [ClaimedTask] {
    guard isPaused, !owesAttempt, !ready.isEmpty else { return [] }
    owesAttempt = true
    return takeUnbegun()
  }

  /// Whether an attempt may begin though the queue is paused.
  var letsThrough: Bool {
    isPaused && owesAttempt && mode != nil && !isStopping && (isClaiming || !ready.isEmpty)
  }

  /// The store failed: no further steps.
  ///
  /// What has ended stays in the outbox for a later run. A claim in flight stays so until it has
  /// returned, since it may have leased tasks.
  mutating func fail(_ error: TaskQueueError) {
    isStopping = true
    failure = failure ?? error
  }

  // MARK: Steps of a worker

  /// A worker asks what to do.
  mutating func next(for worker: Int) -> Step {
    if isStopping { return .stop }
    if isPaused, !owesAttempt || ready.isEmpty {
      // No worker of a pass leaves alone: what is claimed after a resume is for all of them.
      guard mode != .untilStopped, performing == 0, !isClaiming else { return .wait }
      isStopping = true
      return .stop
    }
    guard outbox.letsGoOn() else { return .wait }
    if let task = takeReady() {
      idle -= 1
      if !isPaused || ready.isEmpty { owesAttempt = false }
      lastAttempt += 1
      let directive = requests.isEmpty ? nil : requests.removeValue(forKey: task.record.id)
      attempts[worker] = Attempt(
        lease: task.lease,
        name: task.record.name,
        number: lastAttempt,
        directive: directive,
        isOver: directive != nil
      )
      let wakesAnother = idle > 0 && (storeHasMore || !ready.isEmpty)
      if let directive { return .obey(directive, task, wakesAnother: wakesAnother) }
      return .perform(task, lastAttempt, wakesAnother: wakesAnother)
    }
    if isClaiming {
      hasNewsForClaim = true
      return .wait
    }
    if isExhausted {
      guard performing == 0 else { return .wait }
      isStopping = true
      return .stop
    }
    isClaiming = true
    isClaimStale = false
    claimCount += 1
    defer { toUnpark = ParkedNames() }
    return .claim(limit: idle, unparking: toUnpark)
  }

  private mutating func takeReady() -> ClaimedTask? {
    // A single one is taken without a change of the array, which whoever has claimed it still holds.
    guard ready.count == 1 else { return ready.popLast() }
    defer { ready = [] }
    return ready[0]
  }

  /// A claim has returned.
  ///
  /// Whether there is a next step at once.
  mutating func claimed(_ claim: Claim, now: Date) -> Bool {
    // A store that hands out nothing has nothing, whatever date it names.
    let hasMore = !claim.tasks.isEmpty && claim.nextDate.map { $0 <= now } ?? false
    storeHasMore = hasNewsForClaim || hasMore
    isClaiming = false
    hasNewsForClaim = false
    ready = claim.tasks
    if ready.count > 1 { ready.reverse() }
    limitedNames.enter(claim.tasks)
    let foundSomething = storeHasMore || !ready.isEmpty || isClaimStale
    emptyLook = foundSomething ? nil : Look(claim: claimCount, horizon: horizon)
    if case .pass = mode, ready.isEmpty, !storeHasMore {
      isExhausted = true
      return true
    }
    return storeHasMore || !ready.isEmpty
  }

  /// A claim has failed.
  mutating func claimFailed() {
    isClaiming = false
    hasNewsForClaim = false
  }

  /// The number of the claim in flight.
  var claimInFlight: Int? { isClaiming ? claimCount : nil }

  /// How many claims have been made; `nil` while one is in flight.
  ///
  /// As long as it stays the same, no task comes to be held by the queue.
  var finishedClaimCount: Int? { isClaiming ? nil : claimCount }

  /// A handler was registered: tasks of these names may be performed now.
  mutating func registered(_ names: [String], areLimited: Bool = false) {
    toUnpark.names.formUnion(names)
    workArrived()
    guard areLimited else { return }
    // Those that were claimed before count, too.
    for name in names {
      let count =
        attempts.count { $0?.name == name } + ready.count { $0.record.name == name }
      limitedNames.add(name, leasedCount: count)
    }
  }

  /// A handler was registered for all names that no other handler has.
  mutating func registeredFallback() {
    toUnpark.others = true
    workArrived()
  }

  /// Something may have become available.
  mutating func workArrived() {
    isExhausted = false
    emptyLook = nil
    hasNewsForClaim = isClaiming
  }

  /// What the last claim has found, or the one in flight will, may not hold any more.
  mutating func forgetLook() {
    emptyLook = nil
    isClaimStale = isClaiming
  }

  /// What was asked of some tasks is to be done now; ``obeyed(_:)`` follows.
  mutating func obeys(_ count: Int) { obeying += count }

  /// What was asked of some tasks has been done.
  mutating func obeyed(_ count: Int) {
    obeying -= count
    forgetLook()
  }

  /// An attempt has ended, and what ended it is kept already.
  ///
  /// Returns what was asked of the task meanwhile.
  @discardableResult
  mutating func finished(_ worker: Int, isAttempt: Bool) -> Directive? {
    guard let attempt = attempts[worker].take() else {
      preconditionFailure("worker \(worker) has ended an attempt that it had not begun")
    }
    attemptCount += isAttempt ? 1 : 0
    idle += 1
    limitedNames.leave(attempt.name)
    // Its name may have room again.
    workArrived()
    // A store that failed has its task in the outbox.
    guard !requests.isEmpty, !outbox.isWaiting(attempt.id),
      let directive = requests.removeValue(forKey: attempt.id)
    else { return nil }
    obeys(1)
    return directive
  }
}
