import Dispatch
import SteadfastRetry
import Synchronization

/// A thread of the system that keeps deadlines while handlers occupy Swift's threads.
///
/// Swift has as many threads as there are cores. A handler that computes or blocks occupies one of
/// them until it suspends, and with it all that waits for that thread. So what proves that this
/// process is alive, and what ends attempts, waits and runs here.
///
/// It never runs a handler. It does call what a cancelled task has registered with
/// `withTaskCancellationHandler`, which is not to block.
final class DeadlineThread: TaskExecutor {
  private typealias Sleepers = DeadlineHeap<
    CheckedContinuation<Void, any Error>, ContinuousClock.Instant
  >

  private struct State: Sendable {
    var jobs: [UnownedJob] = []
    var sleepers = Sleepers()
  }

  /// The one thread of the process; `nil` if the system can't start it.
  static let shared = try? DeadlineThread()

  private let state = Mutex(State())
  private let changed = DispatchSemaphore(value: 0)

  /// Starts the thread, which never ends.
  private init() throws(SystemCallError) {
    try SystemThread.start { [self] in while true { step() } }
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    state.withLock { $0.jobs.append(job) }
    changed.signal()
  }

  /// Suspends for the delay.
  /// - Throws: `CancellationError` as soon as the task is cancelled.
  nonisolated(nonsending) func sleep(for delay: Duration) async throws {
    try Task.checkCancellation()
    let end = ContinuousClock.now + max(delay, .zero).sleepable
    try await CancellableSuspension<Sleepers.Ticket>.suspend { continuation in
      let (ticket, isFirst) = state.withLock { state in
        let ticket = state.sleepers.insert(continuation, deadline: end)
        return (ticket, state.sleepers.firstDeadline == end)
      }
      if isFirst { changed.signal() }
      return (ticket, [])
    } withdraw: { ticket in
      state.withLock { $0.sleepers.remove(ticket) }
    }
  }

  /// Does what is due, and then sleeps until there is more.
  private func step() {
    let now = ContinuousClock.now
    var due: [CheckedContinuation<Void, any Error>] = []
    let (jobs, next) = state.withLock { state in
      while let (_, sleeper) = state.sleepers.popFirst(through: now) { due.append(sleeper) }
      defer { state.jobs = [] }
      return (state.jobs, state.sleepers.firstDeadline)
    }
    for sleeper in due { sleeper.resume() }
    for job in jobs { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
    guard due.isEmpty, jobs.isEmpty else { return }
    changed.wait(until: next)
  }
}
