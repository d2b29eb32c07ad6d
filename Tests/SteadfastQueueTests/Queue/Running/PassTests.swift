import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// Tests the end of a pass: a run that ends when no task is available.
@Suite(.virtualTime) struct PassTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// A worker yields after every 256th attempt, while its last claim may still be in flight.
  @Test(arguments: 253...258)
  func `a pass performs a task that a handler adds, whatever the other workers are doing`(
    count: Int
  ) async throws {
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
