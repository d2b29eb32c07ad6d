import SteadfastRetry

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
///
/// With one thread, claims waited for the flush before them: 64 producers and 8 workers were done
/// with 10,500 tasks a second. With two they are done with 31,000 to 38,000 (flushes of 0.1 ms).
final class IOThread: JobThread {
  private let work = IOQueue()

  /// Starts the threads.
  init() throws(SystemCallError) {
    for _ in 0..<2 {
      do throws(SystemCallError) {
        try SystemThread.start { [work] in work.doAll() }
      } catch {
        work.end()
        throw error
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
}
