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
      var isEnding = false
    }

    private let state = Mutex(State())
    private let changed = DispatchSemaphore(value: 0)

    func add(_ job: @escaping Job) {
      state.withLock { $0.jobs.append(job) }
      changed.signal()
    }

    func end() {
      state.withLock { $0.isEnding = true }
      changed.signal()
    }

    func doAll() {
      while true {
        changed.wait()
        let (jobs, isEnding) = state.withLock { state in
          defer { state.jobs = [] }
          return (state.jobs, state.isEnding)
        }
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
