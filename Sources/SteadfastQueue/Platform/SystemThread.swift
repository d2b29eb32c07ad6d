import Dispatch
import SteadfastRetry
import Synchronization
import SystemC

/// System threads, for work that blocks.
package enum SystemThread {
  private final class Work: Sendable {
    let perform: @Sendable () -> Void

    init(_ perform: @escaping @Sendable () -> Void) { self.perform = perform }
  }

  /// Starts a thread that ends when `work` returns.
  package static func start(_ work: @escaping @Sendable () -> Void) throws(SystemCallError) {
    let context = unsafe Unmanaged.passRetained(Work(work))
    let number = unsafe createThread(performing: context.toOpaque())
    guard number == 0 else {
      unsafe context.release()
      throw SystemCallError("pthread_create", number)
    }
  }

  /// Blocks signals on this thread, except those that report an error in the program itself.
  ///
  /// A signal that is sent to the process then goes to one of the program's own threads. On this
  /// thread, it would interrupt a flush.
  ///
  /// On Linux, a write beyond the process's file size limit sends a signal to the thread that
  /// writes. Because the signal is blocked here, the write fails instead of ending the process, and
  /// the program's own threads keep the handling that they chose.
  private static func blockSignals() {
    var signals = sigset_t()
    _ = unsafe sigfillset(&signals)
    for signal in [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP] {
      _ = unsafe sigdelset(&signals, signal)
    }
    _ = unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  private static func createThread(performing context: UnsafeMutableRawPointer) -> Int32 {
    #if canImport(Darwin) || canImport(Musl)
    var thread: pthread_t?
    #else
    var thread = pthread_t()
    #endif
    let number = unsafe pthread_create(
      &thread,
      nil,
      { context in
        // The C libraries disagree on whether the argument and the result may be null. Nothing
        // reads the result.
        let pointer: UnsafeMutableRawPointer? = unsafe context
        guard let pointer = unsafe pointer else { return unsafe context }
        let work = unsafe Unmanaged<Work>.fromOpaque(pointer).takeRetainedValue()
        SystemThread.blockSignals()
        work.perform()
        return unsafe context
      },
      context
    )
    #if canImport(Darwin) || canImport(Musl)
    if number == 0, let thread = unsafe thread { unsafe pthread_detach(thread) }
    #else
    if number == 0 { pthread_detach(thread) }
    #endif
    return number
  }
}

/// The identity of a thread, which no other thread of the process ever has, even after the thread
/// has ended.
///
/// This type does not use `pthread_self`: the C libraries declare it constant, so an optimizer may
/// reuse its result after a suspension, when the code may run on another thread.
package struct ThreadIdentity: Sendable, Equatable {
  private static let count = Atomic<UInt>(0)

  private static let key: pthread_key_t = {
    var key = pthread_key_t()
    let error = unsafe pthread_key_create(&key, nil)
    precondition(error == 0, "\(SystemCallError("pthread_key_create", error))")
    return key
  }()

  private let number: UInt

  package static var current: ThreadIdentity {
    if let stored = unsafe pthread_getspecific(key) {
      return ThreadIdentity(number: UInt(bitPattern: stored))
    }
    let number = count.add(1, ordering: .relaxed).newValue
    let error = unsafe pthread_setspecific(key, UnsafeRawPointer(bitPattern: number))
    precondition(error == 0, "\(SystemCallError("pthread_setspecific", error))")
    return ThreadIdentity(number: number)
  }
}

/// A system thread that meets deadlines even while handlers occupy all of Swift's threads.
///
/// Swift has as many threads as there are cores. A handler that computes or blocks occupies one of
/// them until it suspends, and everything that waits for that thread is delayed. So this thread
/// runs the code that must be on time: it extends leases, and ends attempts, waits and runs.
///
/// This thread never runs a handler. But it calls the cancellation handlers
/// (`withTaskCancellationHandler`) of the tasks that it cancels, so those must not block.
final class DeadlineThread: TaskExecutor {
  private typealias Sleepers = DeadlineHeap<
    CheckedContinuation<Void, any Error>, ContinuousClock.Instant
  >

  private struct State: Sendable {
    var jobs: [UnownedJob] = []
    var sleepers = Sleepers()
  }

  /// The process's thread of this kind; `nil` if the system can't start it.
  static let shared = try? DeadlineThread()

  private let state = Mutex(State())
  private let changed = DispatchSemaphore(value: 0)

  /// Starts the thread, which never ends.
  private init() throws(SystemCallError) {
    try SystemThread.start { [self] in while true { performDueWork() } }
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

  /// Performs the jobs and resumes the sleepers that are due; if there are none, waits until there
  /// are.
  private func performDueWork() {
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

extension DispatchSemaphore {
  /// Waits for a signal, but no longer than until `instant`, if that is not `nil`.
  func wait(until instant: ContinuousClock.Instant?) {
    guard let instant else { return wait() }
    let (seconds, attoseconds) = ContinuousClock.now.duration(to: instant).components
    let nanoseconds = seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    // Where an integer has 32 bits, one wait lasts at most two seconds, and the caller waits again.
    _ = wait(timeout: .now() + .nanoseconds(Int(clamping: max(0, nanoseconds) + 1)))
  }
}
