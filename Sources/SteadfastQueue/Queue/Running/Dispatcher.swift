import SteadfastRetry
import Synchronization
import SystemFoundation

/// Gives each worker of a queue its next step, and wakes the workers and callers that wait for one.
final class Dispatcher: Sendable {
  let name: String
  let time: QueueTime
  let storage: QueueStore
  /// The state of the queue and its run, which decides each worker's next step.
  let machine: Mutex<WorkMachine>
  let signals: Signals
  let latestDate = LatestDate()

  init(
    _ name: String,
    _ time: QueueTime,
    _ storage: QueueStore,
    workers: Int,
    _ availability: StoreAvailability
  ) {
    self.name = name
    self.time = time
    self.storage = storage
    machine = Mutex(WorkMachine(workers: workers))
    signals = Signals(workers: workers, availability)
  }

  var store: any Persistence { storage.front }

  var now: Date {
    let now = time.now
    latestDate.update(with: now)
    return now
  }
}

/// Steps of workers.
extension Dispatcher {
  /// Calls `event`, which changes the machine's state, and returns the worker's next step.
  ///
  /// If `event` returns `false`, the next step is `wait`.
  func nextStep(
    of worker: Int,
    wasWoken: Bool = false,
    after event: (inout WorkMachine) -> Bool = { _ in true }
  ) -> WorkMachine.Step {
    let isCancelled = Task.isCancelled
    let (step, isPaused) = machine.withLock { machine in
      let goesOn = event(&machine)
      if isCancelled { machine.cancel() }
      let step: WorkMachine.Step =
        goesOn ? machine.next(for: worker, wasWoken: wasWoken, at: time.stopwatch) : .wait
      return (step, machine.isPaused)
    }
    if isPaused { signals.notifyOfStepWhilePaused() }
    return step
  }

  /// Ends the worker's attempt.
  ///
  /// - Returns: The command that a caller has requested for the task during the attempt, if there
  ///   is one, and whether the attempt was to be cut short.
  func endAttempt(
    of worker: Int,
    after duration: Duration? = nil
  ) -> (TaskCommand?, Bool) {
    let end = machine.withLock { machine in
      let isCutShort = machine.mustInterrupt(worker)
      return (machine.endAttempt(of: worker, after: duration), isCutShort)
    }
    // Resume the callers that have requested the command, in case the attempt has ended by itself
    // before it could be cut short.
    if end.0 != nil { signals.interruption.resumeAll(with: .success(())) }
    return end
  }
}

/// Waking and stopping workers.
extension Dispatcher {
  /// Makes a worker look for available tasks at a date, or now if the date has passed.
  ///
  /// If the date is not after `past`, which the caller knows to have passed, this does not read the
  /// clock.
  func lookForWork(at date: Date, after past: Date = .distantPast) {
    if date <= past { return lookForWork() }
    let now = now
    if date <= now { lookForWork() } else { signals.timer.set(date, from: now) }
  }

  /// Makes a worker look for available tasks.
  func lookForWork() {
    // Only a pass ends when it finds no tasks. So only during a pass, the machine must record that
    // there may be some.
    if signals.isPassing.load(ordering: .sequentiallyConsistent) {
      machine.withLock { $0.workArrived() }
    }
    signals.workers.signal()
  }

  /// Stops the run, because the store has failed, and makes the run throw an error.
  ///
  /// A run that is about to end ignores transient errors, unless `losing` is set.
  ///
  /// - Parameters:
  ///   - error: the store's error.
  ///   - operation: what the store could not do, as the infinitive after "could not".
  ///   - losing: whether a result or a command is lost if the error is ignored.
  func fail(_ error: any Error, to operation: String, losing: Bool = false) {
    if !losing {
      // The caller was cancelled while it waited for an unavailable store.
      if error is CancellationError, Task.isCancelled { return }
      if error.isTransientFailure, Task.isCancelled || machine.withLock({ $0.isStopping }) {
        return
      }
    }
    let error = TaskQueueError(
      .storeFailed,
      "the queue '\(name)' has stopped, because its store (\(store)) could not \(operation): "
        + "\(error). No change that the store has acknowledged is lost. Fix the cause of the store's "
        + "error, and run the queue again",
      underlying: error
    )
    machine.withLock { $0.fail(error) }
    notifyOfStop()
  }

  /// Resumes the workers and callers whose wait may end because the run stops.
  func notifyOfStop() {
    updateRetryPolicy()
    signals.notifyOfStop()
  }

  /// Passes to the store's retry policy whether the run or the queue is about to end.
  func updateRetryPolicy() {
    guard let retryPolicy = storage.retryingStore?.retryPolicy else { return }
    retryPolicy.updateStop {
      machine.withLock {
        StoreRetryPolicy.Stop(
          isStopping: $0.isStopping && $0.mode != nil,
          isShutDown: $0.isShutDown,
          isCutShort: $0.cutsShort
        )
      }
    }
  }

  var isStopping: Bool { machine.withLock { $0.isStopping } }

  /// Calls `event`, which marks the attempts as to be cut short, and cuts them short.
  func cutShort(by event: (inout WorkMachine) -> Void = { $0.cutShort() }) {
    machine.withLock { event(&$0) }
    notifyOfStop()
    storage.setWaiting(false)
    for interrupt in signals.interrupts { interrupt.signal() }
  }

  /// Whether the queue was shut down, and its last run has ended.
  var hasEnded: Bool { machine.withLock { $0.hasEnded } }
}

/// Leases.
extension Dispatcher {
  /// How long a lease lasts unless it is extended; `nil` if the store is not shared.
  var leaseDuration: Duration? {
    store.sharing.map { min($0.leaseDuration, .longestStorable) }
  }

  /// Whether a lease of this queue may have expired, because it was not extended in time.
  var leasesMayHaveExpired: Bool { leasesMayHaveExpired(by: time.stopwatch()) }

  func leasesMayHaveExpired(by now: Duration) -> Bool {
    guard let leaseDuration else { return false }
    return machine.withLock { now >= $0.leasesExtended + leaseDuration }
  }

  /// Cuts short the attempt of a task that another queue has claimed since this lease expired.
  ///
  /// The result of that attempt is not stored.
  func handleLostLease(_ lease: Lease) {
    let worker = machine.withLock { $0.dropLease(lease) }
    // A caller of `pause()` may be waiting for this task to start, which it no longer does.
    signals.pauseProgress.resumeAll(with: .success(()))
    if let worker { signals.interrupts[worker].signal() }
  }
}

/// A task-local value that tells which worker of which queue the current Swift task belongs to.
struct WorkerMark: Sendable {
  private let dispatch: ObjectIdentifier
  private let worker: Int

  /// The marks of the current Swift task, the innermost last; there are several if a handler of one
  /// queue runs another queue.
  @TaskLocal private static var current: [WorkerMark] = []

  /// Performs the body as a worker of a queue.
  static func withMark<Result>(
    _ dispatch: Dispatcher,
    _ worker: Int,
    _ body: () async -> Result
  ) async -> Result {
    let mark = WorkerMark(dispatch: ObjectIdentifier(dispatch), worker: worker)
    return await $current.withValue(current + [mark]) { await body() }
  }

  /// Returns the worker of a queue to which the current Swift task belongs, if there is one.
  static func worker(of dispatch: Dispatcher) -> Int? {
    current.last { $0.dispatch == ObjectIdentifier(dispatch) }?.worker
  }
}

extension Dispatcher {
  /// The task whose handler makes the current call, if that is a handler of this queue; otherwise
  /// `nil`.
  ///
  /// The call may also come from a Swift task that the handler started. If such a call waited for
  /// the run to end, or for the task to end, it would wait forever.
  var callingTask: TaskID? {
    guard let worker = WorkerMark.worker(of: self) else { return nil }
    return machine.withLock { $0.attempts[worker]?.id }
  }
}
