import SteadfastRetry
import Synchronization
import SystemFoundation

/// Decides what a queue performs next.
///
/// The dispatcher owns the state machine, and wakes the workers and callers that wait for a step of
/// the machine.
final class Dispatcher: Sendable {
  let name: String
  let time: QueueTime
  let storage: QueueStore
  /// The state of the run, which decides each worker's next step.
  let machine: Mutex<WorkMachine>
  /// Swift tasks suspended until the queue takes a step.
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
  /// Applies an event to the machine, and returns what the worker does next.
  ///
  /// If the event returns `false`, there is no next step yet, and the worker waits.
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
  /// - Returns: The command for the task, if any, and whether the attempt was to be cut short.
  func endAttempt(
    of worker: Int,
    after duration: Duration? = nil
  ) -> (TaskCommand?, Bool) {
    let end = machine.withLock { machine in
      let isCutShort = machine.mustInterrupt(worker)
      return (machine.endAttempt(of: worker, after: duration), isCutShort)
    }
    // If the attempt has ended before it could be cut short, callers still wait for that.
    if end.0 != nil { signals.interruption.resumeAll(with: .success(())) }
    return end
  }
}

/// Waking and stopping workers.
extension Dispatcher {
  /// Makes a worker look for tasks when a task becomes available.
  ///
  /// If the date is not after `past`, this does not read the clock.
  func lookForWork(at date: Date, after past: Date = .distantPast) {
    if date <= past { return lookForWork() }
    let now = now
    if date <= now { lookForWork() } else { signals.timer.set(date, from: now) }
  }

  /// Makes a worker look for available tasks.
  func lookForWork() {
    // Only in a pass must the machine be told: any other run looks for tasks until it is stopped.
    if signals.isPassing.load(ordering: .sequentiallyConsistent) {
      machine.withLock { $0.workArrived() }
    }
    signals.workers.signal()
  }

  /// Stops the run, because the store has failed.
  ///
  /// A run that is about to end ignores that the store is temporarily unavailable, unless something
  /// is lost (`losing`).
  func fail(_ error: any Error, to operation: String, losing: Bool = false) {
    if !losing {
      // The wait for an unavailable store was cancelled.
      if error is CancellationError, Task.isCancelled { return }
      if error.isTransientFailure, Task.isCancelled || machine.withLock({ $0.isStopping }) {
        return
      }
    }
    let error = TaskQueueError(
      .storeFailed,
      "the queue '\(name)' has stopped, because its store (\(store)) could not \(operation): "
        + "\(error). Nothing that was acknowledged is lost. Follow the advice of the store's error, "
        + "and run the queue again when the fault is fixed",
      underlying: error
    )
    machine.withLock { $0.fail(error) }
    notifyOfStop()
  }

  /// Wakes every wait that a stop may have made pointless.
  func notifyOfStop() {
    updateRetryPolicy()
    signals.notifyOfStop()
  }

  /// Informs the code that waits for the store about a stop.
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

  /// Applies an event that cuts attempts short, and interrupts them.
  func cutShort(by event: (inout WorkMachine) -> Void = { $0.cutShort() }) {
    machine.withLock { event(&$0) }
    notifyOfStop()
    for interrupt in signals.interrupts { interrupt.signal() }
  }

  /// Whether the queue performs no more tasks.
  var hasEnded: Bool { machine.withLock { $0.hasEnded } }
}

/// Leases.
extension Dispatcher {
  /// How long a claim lasts unless it is extended; `nil` if the store is not shared.
  var leaseDuration: Duration? {
    store.sharing.map { min($0.leaseDuration, .longestStorable) }
  }

  /// Whether a claim of this queue may have expired, because it could not be extended.
  var leasesMayHaveExpired: Bool { leasesMayHaveExpired(by: time.stopwatch()) }

  func leasesMayHaveExpired(by now: Duration) -> Bool {
    guard let leaseDuration else { return false }
    return machine.withLock { now >= $0.leasesExtended + leaseDuration }
  }

  /// Handles a lease whose task another queue has taken over.
  ///
  /// The attempt in this queue is cut short, and its end is not stored.
  func handleLostLease(_ lease: Lease) {
    let worker = machine.withLock { $0.dropLease(lease) }
    // A caller of `pause()` may have waited only for this task to start.
    signals.pauseProgress.resumeAll(with: .success(()))
    if let worker { signals.interrupts[worker].signal() }
  }
}

/// Marks a Swift task as a worker, or as a child of a worker.
///
/// There is one mark for each worker, not for each attempt. The machine knows what a worker
/// performs.
struct WorkerMark: Sendable {
  private let dispatch: ObjectIdentifier
  private let worker: Int

  /// The workers around the current Swift task; several if a handler runs another queue.
  @TaskLocal private static var current: [WorkerMark] = []

  static func around<Result>(
    _ dispatch: Dispatcher,
    _ worker: Int,
    _ body: () async -> Result
  ) async -> Result {
    let mark = WorkerMark(dispatch: ObjectIdentifier(dispatch), worker: worker)
    return await $current.withValue(current + [mark]) { await body() }
  }

  /// Returns the worker of a queue that the current Swift task belongs to, if there is one.
  static func worker(of dispatch: Dispatcher) -> Int? {
    current.last { $0.dispatch == ObjectIdentifier(dispatch) }?.worker
  }
}

extension Dispatcher {
  /// The task of this queue whose handler made this call, directly or through code that it started.
  ///
  /// Such a caller would wait forever for the end of its own task, or for the end of the run.
  var callingTask: TaskID? {
    guard let worker = WorkerMark.worker(of: self) else { return nil }
    return machine.withLock { $0.attempts[worker]?.id }
  }
}
