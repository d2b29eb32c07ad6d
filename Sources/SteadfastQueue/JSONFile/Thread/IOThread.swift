import SteadfastRetry

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
  /// Adds a job that is done beside the others, in no order.
  func addBeside(_ job: @escaping @Sendable () -> Void)
  /// Called by a job: from now on its turn is over, and the jobs behind it are done beside it, in
  /// order, by another thread.
  ///
  /// What the body does is not to be waited for by those.
  func handOn<Result, Failure: Error>(
    during body: () throws(Failure) -> Result
  ) throws(Failure) -> Result
  /// Called by a job that has handed its turn on: whether it has a turn again, which it has not
  /// while another job has one.
  func takeTurn() -> Bool
}

/// Threads of their own for work that blocks, so that none of it holds up Swift's shared threads.
///
/// Jobs are done one after another, in order, by one of two threads: the other takes its place when
/// a job hands its turn on, and does what is to be done beside. They end when the last reference to
/// this has gone and all jobs are done.
final class IOThread: JobThread {
  private let work = IOWork()

  /// Starts the threads.
  init() throws(SystemCallError) {
    for _ in 0..<2 {
      let context = unsafe Unmanaged.passRetained(work)
      let number = unsafe Self.start(context.toOpaque())
      guard number == 0 else {
        unsafe context.release()
        work.end()
        throw SystemCallError("pthread_create", number)
      }
    }
  }

  deinit { work.end() }

  func add(_ job: @escaping @Sendable () -> Void) { work.add(job) }

  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
    work.add(job, at: .now + delay.sleepable)
  }

  func addBeside(_ job: @escaping @Sendable () -> Void) { work.addBeside(job) }

  func takeTurn() -> Bool { work.takeTurn() }

  func handOn<Result, Failure: Error>(
    during body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    work.handOn()
    return try body()
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
        let work = unsafe Unmanaged<IOWork>.fromOpaque(context).takeRetainedValue()
        #else
        guard let context = unsafe context else { return nil }
        let work = unsafe Unmanaged<IOWork>.fromOpaque(context).takeRetainedValue()
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
