/// A gate that suspends tasks on any thread until the gate opens.
struct Gate: Sendable {
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func open() { continuation.finish() }

  /// Suspends until the gate opens or the task is cancelled.
  func pass() async { for await _ in stream {} }
}
