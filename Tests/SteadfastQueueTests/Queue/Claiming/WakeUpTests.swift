import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the signals that wake workers.
///
/// Signals don't add up: until a worker wakes, a second signal has no effect.
@Suite struct WakeUpTests {
  @Test(.virtualTime)
  func `a task added while a worker wakes up for another task runs concurrently with that task`()
    async throws
  {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: try VirtualTime.required.clock
    )
    let isThere = Waiters<Void>()
    let log = Log<String>()
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      switch note.text {
      case "warm-up": break
      case "late": isThere.resumeAll(with: .success(()))
      default:
        // The second worker was woken for the second task, but hasn't claimed it yet.
        if note.text == "first" { try await queue.enqueue(Note("late")) }
        try await isThere.wait { log.entries.contains("late") ? .success(()) : nil }
      }
    }
    try await withRunning(queue) {
      // After this task, all workers are idle, and no claim is in flight.
      _ = try await queue.enqueue(Note("warm-up")).outcome()
      try await VirtualTime.required.advance(by: .zero)
      try await queue.enqueue(contentsOf: [Note("first"), Note("second")])
      try await queue.waitUntilIdle()
    }
    #expect(log.entries.sorted() == ["first", "late", "second", "warm-up"])
  }
}
