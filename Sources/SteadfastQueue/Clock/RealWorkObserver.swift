/// Whoever keeps a clock still while real work is in flight.
package protocol RealWorkObserver: Sendable {
  /// What runs the tasks beside the works.
  var taskExecutor: any TaskExecutor { get }
  /// Some work began; each call is followed by one of ``realWorkEnded()``, from any thread.
  func realWorkBegan()
  /// Some work ended, and what waited for it has been resumed.
  func realWorkEnded()
  /// Suspends until a work may begin that takes turns with others; ``endTurn()`` follows, once.
  ///
  /// It is not cancelled with its task.
  nonisolated(nonsending) func beginTurn() async
  /// The work whose turn it is has ended; suspends until its caller may go on.
  nonisolated(nonsending) func endTurn() async
}
