import SteadfastQueue
import Synchronization

/// Runs the jobs of one ``VirtualTime``, all on its driver's thread.
///
/// When the executor is closed, the jobs of tasks that outlive the ``VirtualTime`` run on the
/// global pool, because a job must never be lost.
final class VirtualTimeExecutor: TaskExecutor {
  // An UnownedJob does not own its job, so each job must be removed from the queue, and run or
  // forwarded, exactly once.
  let state: Mutex<VirtualTimeState<UnownedJob>>
  let encodesPayloads: Bool

  init(order: VirtualTime.Order, encodesPayloads: Bool) {
    state = Mutex(VirtualTimeState(order: order))
    self.encodesPayloads = encodesPayloads
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let thread = ThreadIdentity.current
    let (isTaken, driver) = state.withLock { state in
      state.isClosed ? (false, nil) : (true, state.enqueue(job, from: thread))
    }
    if !isTaken { globalConcurrentExecutor.enqueue(job) }
    driver?.resume()
  }

  /// Runs `wake`, then jobs until none remain or `isInterrupted` returns true.
  ///
  /// Jobs that `wake` makes ready count as jobs from inside the virtual time.
  /// - Returns: The number of jobs that ran.
  @discardableResult func run(wake: () -> Void = {}, until isInterrupted: () -> Bool = { false })
    -> Int
  {
    var count = 0
    state.withLock { $0.startDriving(on: .current) }
    defer { state.withLock { $0.stopDriving() } }
    wake()
    while !isInterrupted(), let job = state.withLock({ $0.popJob() }) {
      // The executor outlives the call: the driver that makes the call holds the executor.
      unsafe job.runSynchronously(on: asUnownedTaskExecutor())
      count += 1
    }
    return count
  }

  var bodyHasEnded: Bool { state.withLock { $0.bodyHasEnded } }

  var signalsFromOutside: UInt64 { state.withLock { $0.signalsFromOutside } }

  func recordBodyEnd() { state.withLock { $0.recordBodyEnd() }?.resume() }

  /// Suspends the driver until a job or a turn is ready, the body ends, or no real work remains.
  ///
  /// With `onlyDuringRealWork`, returns at once if no real work is in flight.
  func waitForSignal(onlyDuringRealWork: Bool) async {
    await withCheckedContinuation { driver in
      let waits = state.withLock { state in
        state.letDriverWait(driver, onlyDuringRealWork: onlyDuringRealWork)
      }
      if !waits { driver.resume() }
    }
  }

  /// Passes the remaining jobs, and all later ones, to the global pool.
  func close() {
    state.withLock { $0.close() }
    while takeTurn() {}
    while let (_, advance) = state.withLock({ $0.popAdvance() }) { advance.resume() }
    while let job = state.withLock({ $0.popJob() }) { globalConcurrentExecutor.enqueue(job) }
  }
}

extension VirtualTimeExecutor: RealWorkObserver {
  var taskExecutor: any TaskExecutor { self }

  func errorForRun(of queue: String, on clock: any WallClock) -> (any Error)? {
    guard let time = VirtualTime.current, time.jobs === self,
      clock as AnyObject === time.clock, !isExecutorOfCurrentTask
    else { return nil }
    let error = VirtualTimeError.runOutside(time, queue: queue)
    return state.withLock { state in
      guard !state.isClosed else { return nil }
      state.recordMistake(error)
      return error
    }
  }

  private var isExecutorOfCurrentTask: Bool {
    let own = unsafe asUnownedTaskExecutor()
    return unsafe withUnsafeCurrentTask { task in unsafe task?.unownedTaskExecutor == own }
  }

  func waitBegan(_ wait: KnownWait) -> UInt64 { state.withLock { $0.waits.add(wait) } }

  func waitEnded(_ number: UInt64) { state.withLock { $0.waits.remove(number) } }

  func realWorkBegan() { state.withLock { $0.beginRealWork() } }

  func realWorkEnded() { state.withLock { $0.endRealWork() }?.resume() }

  func beginTurn() async {
    await withCheckedContinuation { work in
      let (isTaken, driver) = state.withLock { $0.beginTurn(work, from: .current) }
      if !isTaken { work.resume() }
      driver?.resume()
    }
  }

  func endTurn() async {
    await withCheckedContinuation { caller in
      let (isTaken, driver) = state.withLock { $0.endTurn(caller) }
      if !isTaken { caller.resume() }
      driver?.resume()
    }
  }

  /// Starts the next real work in turn, or resumes the caller of work that has ended.
  ///
  /// Returns false if there is neither.
  @discardableResult func takeTurn() -> Bool {
    guard let turn = state.withLock({ $0.popTurn() }) else { return false }
    turn.resume()
    return true
  }
}

/// The jobs that are ready, and the order in which they run.
///
/// Jobs that other jobs of the same virtual time made ready run in order, or in an order drawn from
/// a seed. Jobs from outside, made ready by a thread whose speed is unknown, wait until no other
/// job remains, and then run one at a time. So the speed of such threads doesn't change the order.
struct RunQueue<Job> {
  private var ready = FIFOQueue<Job>()
  private var outside = FIFOQueue<Job>()
  private var generator: SplitMix64?

  init(order: VirtualTime.Order) {
    if case .shuffled(let seed) = order { generator = Randomness.seeded(seed).makeGenerator() }
  }

  var isEmpty: Bool { ready.isEmpty && outside.isEmpty }

  mutating func append(_ job: Job) { ready.append(job) }

  mutating func appendFromOutside(_ job: Job) { outside.append(job) }

  /// Removes and returns the job to run next, in O(1).
  mutating func popNext() -> Job? {
    if ready.isEmpty { return outside.popFirst() }
    if ready.count > 1, let chosen = generator?.next(upperBound: UInt64(ready.count)) {
      ready.bringToFront(Int(chosen))
    }
    return ready.popFirst()
  }
}

/// The real work that runs one piece at a time: the current piece, and the waiting pieces.
///
/// Each piece of work waits twice: before it starts, and after it ends, before its caller
/// continues. Both times, ``popNext()`` ends the wait. The driver calls that method when nothing
/// else can run.
struct Turns<Waiter> {
  private enum Stage {
    case free
    case underWay
    case ended(Waiter)
  }

  private var stage = Stage.free
  private var waiting = FIFOQueue<Waiter>()

  /// Whether a piece of work has started and not ended.
  var isUnderWay: Bool {
    switch stage {
    case .underWay: true
    case .free, .ended: false
    }
  }

  /// Whether ``popNext()`` has a waiter to return.
  var hasNext: Bool {
    switch stage {
    case .free: !waiting.isEmpty
    case .underWay: false
    case .ended: true
    }
  }

  /// Adds a piece of work that waits to start.
  mutating func append(_ work: Waiter) { waiting.append(work) }

  /// Records that the current work has ended, and that its caller waits.
  mutating func end(_ caller: Waiter) {
    guard isUnderWay else { preconditionFailure("work ended out of turn") }
    stage = .ended(caller)
  }

  /// Removes and returns the next waiter: the caller of work that has ended, or else the next work.
  mutating func popNext() -> Waiter? {
    switch stage {
    case .underWay: return nil
    case .ended(let caller):
      stage = .free
      return caller
    case .free:
      guard let work = waiting.popFirst() else { return nil }
      stage = .underWay
      return work
    }
  }

  /// Removes and returns any waiter, even if it is not its turn.
  mutating func popAny() -> Waiter? {
    if case .ended = stage { return popNext() }
    return waiting.popFirst()
  }
}

/// The step that a virtual time takes when none of its jobs can run.
enum IdleStep: Equatable {
  /// Starts the next real work in turn, or resumes the caller of work that has ended.
  case takeTurn
  /// Moves the time to the first deadline and wakes sleepers that are due then.
  case wake
  /// Moves the time to the target of the first advance and ends that advance.
  case endAdvance
  /// Waits for real work, without moving the time.
  case waitForRealWork
  /// No step of the virtual time can make a job run.
  case stuck

  /// Decides on the step.
  ///
  /// Sleeps that are due at the target of an advance end before the advance does.
  init(
    mode: VirtualTime.Mode,
    firstDeadline: VirtualClock.Instant?,
    firstTarget: VirtualClock.Instant?,
    hasTurn: Bool,
    isHeld: Bool
  ) {
    if hasTurn {
      // Take the turn even while other real work is in flight, which may be waiting for this turn.
      self = .takeTurn
    } else if isHeld {
      self = .waitForRealWork
    } else if let firstTarget {
      self = firstDeadline.map { $0 <= firstTarget } ?? false ? .wake : .endAdvance
    } else if firstDeadline != nil, mode == .automatic {
      self = .wake
    } else {
      self = .stuck
    }
  }
}
