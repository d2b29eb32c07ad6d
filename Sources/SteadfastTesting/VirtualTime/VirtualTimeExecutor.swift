import SteadfastQueue
import Synchronization

/// Runs the jobs of one virtual time, all on the thread of the driver that calls it.
///
/// After it is closed, the jobs of tasks that outlive their virtual time run on the global pool,
/// because a job must never be lost.
final class VirtualTimeExecutor: TaskExecutor {
  // An UnownedJob does not own its job. Each one is removed from the queue once, and run or passed
  // on once.
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

  /// Runs `wake`, then jobs until none is left or `isInterrupted` returns true.
  ///
  /// Jobs that `wake` makes ready count as made ready inside the virtual time.
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

  func endBody() { state.withLock { $0.endBody() }?.resume() }

  /// Suspends the driver until a job arrives, the body ends, or the last real work ends.
  func waitForSignal(forRealWork: Bool) async {
    await withCheckedContinuation { driver in
      let waits = state.withLock { $0.letDriverWait(driver, forRealWork: forRealWork) }
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

  func mistake(inRunning queue: String, on clock: any WallClock) -> (any Error)? {
    guard let time = VirtualTime.current, time.jobs === self,
      clock as AnyObject === time.clock, !isExecutorOfCurrentTask
    else { return nil }
    let error = VirtualTimeError.runOutside(time, queue: queue)
    return state.withLock { state in
      guard !state.isClosed else { return nil }
      state.note(error)
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

  /// Lets the next work that takes turns begin, or lets its caller go on; false if there is none.
  @discardableResult func takeTurn() -> Bool {
    guard let turn = state.withLock({ $0.popTurn() }) else { return false }
    turn.resume()
    return true
  }
}
