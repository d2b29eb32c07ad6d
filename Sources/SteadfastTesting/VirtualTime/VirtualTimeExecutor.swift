import SteadfastQueue
import Synchronization

/// Runs all jobs of one ``VirtualTime`` on one thread at a time, that of the virtual time's driver.
///
/// After the executor has been closed, it passes jobs to the global executor, so that tasks that
/// outlive the ``VirtualTime`` can end.
final class VirtualTimeExecutor: TaskExecutor {
  // An UnownedJob does not own its job. So each job must leave the queue exactly once, and then be
  // run here or passed to the global executor.
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
  /// Jobs that `wake` makes ready are treated like jobs that the virtual time's tasks make ready.
  /// - Returns: The number of jobs that ran.
  @discardableResult func run(wake: () -> Void = {}, until isInterrupted: () -> Bool = { false })
    -> Int
  {
    var count = 0
    state.withLock { $0.startDriving(on: .current) }
    defer { state.withLock { $0.stopDriving() } }
    wake()
    while !isInterrupted(), let job = state.withLock({ $0.popJob() }) {
      // Safe, because the driver that makes this call keeps the executor alive.
      unsafe job.runSynchronously(on: asUnownedTaskExecutor())
      count += 1
    }
    return count
  }

  var bodyHasEnded: Bool { state.withLock { $0.bodyHasEnded } }

  var signalsFromOutside: UInt64 { state.withLock { $0.signalsFromOutside } }

  func recordBodyEnd() { state.withLock { $0.recordBodyEnd() }?.resume() }

  /// Suspends the driver until it has something to do, the body ends, or no real work is in flight.
  ///
  /// If `onlyDuringRealWork` is true, the method returns at once if no real work is in flight.
  func waitForSignal(onlyDuringRealWork: Bool) async {
    await withCheckedContinuation { driver in
      let waits = state.withLock { state in
        state.storeWaitingDriver(driver, onlyDuringRealWork: onlyDuringRealWork)
      }
      if !waits { driver.resume() }
    }
  }

  /// Passes the remaining jobs, and all later ones, to the global executor.
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
      state.recordOutsideUse(error)
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

  /// Starts the next operation of `RealWork.performInTurn`, or resumes the caller of one that has
  /// ended.
  ///
  /// Returns false if there is neither.
  @discardableResult func takeTurn() -> Bool {
    guard let turn = state.withLock({ $0.popTurn() }) else { return false }
    turn.resume()
    return true
  }
}

/// The jobs of a virtual time that are ready, and the order in which they run.
///
/// Jobs that the virtual time's own jobs made ready run first in, first out, or in a random order.
/// A job that another thread made ready waits until none of those remain. So the speed of other
/// threads does not change the order of the virtual time's own jobs.
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

/// The operations of `RealWork.performInTurn`, of which only one runs at a time.
///
/// A caller waits twice: until its operation may start, and after the operation has ended, until
/// the caller may continue. Each time, ``popNext()`` returns the caller that may go on. The driver
/// calls that method when nothing else can run.
struct Turns<Waiter> {
  private enum Stage {
    case free
    case underWay
    case ended(Waiter)
  }

  private var stage = Stage.free
  private var waiting = FIFOQueue<Waiter>()

  /// Whether an operation has started and not ended.
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

  /// Adds the caller of an operation that waits to start.
  mutating func append(_ work: Waiter) { waiting.append(work) }

  /// Records that the running operation has ended, and that its caller waits to continue.
  mutating func end(_ caller: Waiter) {
    guard isUnderWay else { preconditionFailure("work ended out of turn") }
    stage = .ended(caller)
  }

  /// Removes and returns the caller that may go on; `nil` if there is none.
  ///
  /// The caller of an operation that has ended comes before callers that wait to start one.
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

  /// Removes and returns any caller that waits, even if another operation runs.
  mutating func popAny() -> Waiter? {
    if case .ended = stage { return popNext() }
    return waiting.popFirst()
  }
}

/// The step that a virtual time takes when none of its jobs can run.
enum IdleStep: Equatable {
  /// Start the next operation of `RealWork.performInTurn`, or resume the caller of one that has
  /// ended.
  case takeTurn
  /// Move the time to the first deadline, and wake tasks that sleep until then.
  case wake
  /// Move the time to the target of the first ``VirtualTime/advance(to:)``, and end that call.
  case endAdvance
  /// Wait for real work, without moving the time.
  case waitForRealWork
  /// Nothing that the virtual time does can make a job run.
  case stuck

  /// Decides on the step.
  ///
  /// A task that sleeps until the target of ``VirtualTime/advance(to:)`` wakes before that call
  /// ends.
  init(
    mode: VirtualTime.Mode,
    firstDeadline: VirtualClock.Instant?,
    firstTarget: VirtualClock.Instant?,
    hasTurn: Bool,
    isHeld: Bool
  ) {
    if hasTurn {
      // Do so even while other real work is in flight, which may be waiting for this operation.
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
