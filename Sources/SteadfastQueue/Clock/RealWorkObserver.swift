/// An observer that keeps a clock still while real work is in flight.
package protocol RealWorkObserver: Sendable {
  /// The executor that runs the tasks, except for their real work.
  var taskExecutor: any TaskExecutor { get }
  /// Whether payloads are encoded when their tasks are enqueued, and decoded for their handlers.
  var encodesPayloads: Bool { get }
  /// Returns why the current task can't run a queue on this clock; `nil` if it can.
  func mistake(inRunning queue: String, on clock: any WallClock) -> (any Error)?
  /// A caller begins to wait for what may never come.
  ///
  /// - Returns: The number to give to ``waitEnded(_:)``.
  func waitBegan(_ wait: KnownWait) -> UInt64
  /// The wait with this number has ended.
  func waitEnded(_ number: UInt64)
  /// Some real work began. Each call is followed by one of ``realWorkEnded()``, from any thread.
  func realWorkBegan()
  /// Some real work ended, and the code that waited for it has been resumed.
  func realWorkEnded()
  /// Suspends until an operation that takes turns may begin. One call of ``endTurn()`` follows.
  ///
  /// Cancelling the task does not end the wait.
  nonisolated(nonsending) func beginTurn() async
  /// The operation that has its turn has ended. Suspends until its caller may go on.
  nonisolated(nonsending) func endTurn() async
}
