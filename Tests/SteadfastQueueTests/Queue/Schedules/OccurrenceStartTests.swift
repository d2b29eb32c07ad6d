import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests changes between the claim of an occurrence and the call of the handler.
@Suite(.virtualTime) struct OccurrenceStartTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  @Test func `an occurrence cancelled while it waits for the store isn't performed`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    let task = try #require(try await queue.task(id))
    try await withRunning(queue) {
      try await bench.advance(hours: 0.5)
      store.inject(.transientError, times: nil) { $0.kind == .value }
      try await bench.advance(hours: 1)
      // The occurrence was claimed, but its schedule can't be read.
      #expect(try await task.record()?.state == .running)
      #expect(try await task.cancel())
      store.restore()
      #expect(try await task.outcome() == .cancelled)
      #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
    }
    #expect(bench.log.entries.isEmpty)
  }
}
