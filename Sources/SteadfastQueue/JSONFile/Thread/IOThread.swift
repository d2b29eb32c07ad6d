import SteadfastRetry

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A thread that does a store's jobs, one after another, in order.
protocol JobThread: AnyObject, Sendable {
  func add(_ job: @escaping @Sendable () -> Void)
  /// Adds a job that is done when `delay` has passed.
  ///
  /// The job is not done if the thread ends before.
  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void)
  /// Performs a short job on the calling thread, which is not this one, if the turn is free.
  ///
  /// - Returns: Whether it has performed the job. If not, a job has the turn or waits for it.
  func performNow(_ job: () -> Void) -> Bool
  /// Ends the turn of the calling job, and performs `body`.
  ///
  /// From then on, another thread does the jobs behind the calling one, in order. They run while
  /// `body` does, and must not wait for it.
  func yieldTurn<Result, Failure: Error>(
    during body: () throws(Failure) -> Result
  ) throws(Failure) -> Result
  /// Asks for a turn again, for a job that has yielded its turn.
  ///
  /// - Returns: Whether the calling job has a turn. It gets none while another job has one.
  func takeTurn() -> Bool
}

/// Two threads for work that blocks, so that the work does not hold up Swift's shared threads.
///
/// One of the two threads does the jobs one after another, in order. When a job yields its turn,
/// the other thread takes over. The threads end when the last reference to this object is gone and
/// all jobs are done.
final class IOThread: JobThread {
  private let work = IOQueue()

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

  func performNow(_ job: () -> Void) -> Bool { work.performNow(job) }

  func takeTurn() -> Bool { work.takeTurn() }

  func yieldTurn<Result, Failure: Error>(
    during body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    work.yieldTurn()
    return try body()
  }

  private static func start(_ context: UnsafeMutableRawPointer) -> Int32 {
    #if canImport(Darwin) || canImport(Musl)
    var thread: pthread_t?
    #else
    var thread = pthread_t()
    #endif
    let number = unsafe pthread_create(
      &thread,
      nil,
      { context in
        // The C libraries do not agree on whether the argument and the result may be null. Nothing
        // reads the result.
        let pointer: UnsafeMutableRawPointer? = unsafe context
        guard let pointer = unsafe pointer else { return unsafe context }
        let work = unsafe Unmanaged<IOQueue>.fromOpaque(pointer).takeRetainedValue()
        work.doAll()
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
