/// Lets those who wait for it pass once it is open, on whatever thread they run.
struct Gate: Sendable {
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func open() { continuation.finish() }

  /// Suspends until the gate is open, or the task is cancelled.
  func pass() async { for await _ in stream {} }
}
