/// Whoever keeps a clock still while real work is in flight.
package protocol RealWorkObserver: Sendable {
  /// What runs the tasks beside the works.
  var taskExecutor: any TaskExecutor { get }
  /// Whether payloads are encoded when their tasks are enqueued, and decoded for their handlers.
  var encodesPayloads: Bool { get }
  /// Somebody waits for what may never come; returns what ``waitEnded(_:)`` is told.
  func waitBegan(_ wait: KnownWait) -> UInt64
  /// The wait has ended.
  func waitEnded(_ number: UInt64)
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
