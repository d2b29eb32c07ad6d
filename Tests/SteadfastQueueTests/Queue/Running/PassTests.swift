import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// When a pass ends.
@Suite(.virtualTime) struct PassTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// A worker yields after each 256th attempt, and its last claim may be in flight then.
  @Test(arguments: 253...258)
  func `it performs what a handler enqueues, whatever its other workers do`(count: Int)
    async throws
  {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { note, context in
      if note.text == "parent" { try await context.enqueue(Note("child")) }
    }
    try await queue.enqueue(contentsOf: (0..<count).map { Note("\($0)") })
    try await queue.enqueue(Note("parent"))
    #expect(try await queue.runAvailable() == count + 2)
    #expect(try await queue.count == 0)
  }
}
