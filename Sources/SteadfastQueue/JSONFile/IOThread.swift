import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Where a store's jobs are done, one after another, in order.
protocol JobThread: AnyObject, Sendable {
  func add(_ job: @escaping @Sendable () -> Void)
  /// Adds a job when so much time has passed.
  ///
  /// It is not done if the thread ends before.
  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void)
}

/// A thread of its own for work that blocks, so that none of it holds up Swift's shared threads.
///
/// Jobs are done one after another, in order. The thread ends when the last reference to this has
/// gone and all jobs are done.
final class IOThread: JobThread {
  private typealias Job = @Sendable () -> Void

  private final class Work: Sendable {
    private struct State {
      var jobs: [Job] = []
      var delayedJobs: [(instant: ContinuousClock.Instant, job: Job)] = []
      var isEnding = false

      /// Takes out the jobs to do now, and says when there will be more.
      mutating func takeJobs(
        _ now: ContinuousClock.Instant
      ) -> (jobs: [Job], next: ContinuousClock.Instant?, isEnding: Bool) {
        defer {
          jobs = []
          delayedJobs.removeAll { $0.instant <= now }
        }
        let due = delayedJobs.filter { $0.instant <= now }.map(\.job)
        let next = delayedJobs.lazy.map(\.instant).filter { $0 > now }.min()
        return (jobs + due, next, isEnding)
      }
    }

    private let state = Mutex(State())
    private let changed = DispatchSemaphore(value: 0)

    func add(_ job: @escaping Job) {
      state.withLock { $0.jobs.append(job) }
      changed.signal()
    }

    func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
      state.withLock { $0.delayedJobs.append((instant, job)) }
      changed.signal()
    }

    func end() {
      state.withLock { $0.isEnding = true }
      changed.signal()
    }

    private func wait(until instant: ContinuousClock.Instant?) {
      guard let instant else { return changed.wait() }
      let (seconds, attoseconds) = ContinuousClock.now.duration(to: instant).components
      let nanoseconds = seconds * 1_000_000_000 + attoseconds / 1_000_000_000
      _ = changed.wait(timeout: .now() + .nanoseconds(Int(max(0, nanoseconds)) + 1))
    }

    /// Lets a write beyond the process's limit for the size of a file fail, and not end the process.
    ///
    /// Linux sends the signal to the thread that writes, so that the program's other threads keep
    /// what they have chosen.
    private func refuseLimitSignal() {
      var signals = sigset_t()
      _ = unsafe sigemptyset(&signals)
      _ = unsafe sigaddset(&signals, SIGXFSZ)
      _ = unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
    }

    func doAll() {
      refuseLimitSignal()
      var next: ContinuousClock.Instant?
      while true {
        wait(until: next)
        let jobs: [Job]
        let isEnding: Bool
        (jobs, next, isEnding) = state.withLock { $0.takeJobs(.now) }
        for job in jobs { job() }
        if isEnding { return }
      }
    }
  }

  private let work = Work()

  /// Starts the thread.
  init() throws(SystemCallError) {
    let context = unsafe Unmanaged.passRetained(work)
    let number = unsafe Self.start(context.toOpaque())
    guard number == 0 else {
      unsafe context.release()
      throw SystemCallError("pthread_create", number)
    }
  }

  deinit { work.end() }

  func add(_ job: @escaping @Sendable () -> Void) { work.add(job) }

  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
    work.add(job, at: .now + delay)
  }

  private static func start(_ context: UnsafeMutableRawPointer) -> Int32 {
    #if canImport(Darwin)
    var thread: pthread_t?
    #else
    var thread = pthread_t()
    #endif
    let number = unsafe pthread_create(
      &thread,
      nil,
      { context in
        #if canImport(Darwin)
        let work = unsafe Unmanaged<Work>.fromOpaque(context).takeRetainedValue()
        #else
        guard let context = unsafe context else { return nil }
        let work = unsafe Unmanaged<Work>.fromOpaque(context).takeRetainedValue()
        #endif
        work.doAll()
        return nil
      },
      context
    )
    #if canImport(Darwin)
    if number == 0, let thread { unsafe pthread_detach(thread) }
    #else
    if number == 0 { pthread_detach(thread) }
    #endif
    return number
  }
}
