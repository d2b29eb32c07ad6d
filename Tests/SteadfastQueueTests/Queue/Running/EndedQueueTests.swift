import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests queues that have been shut down.
@Suite(.virtualTime) struct EndedQueueTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  enum End: CaseIterable {
    case withoutRun, afterRun, duringRun, withinLimit, byHandler, destroyed
  }

  /// Makes a queue whose handlers retain it, uses it, and ends it in the given way.
  private func useQueue(endedBy end: End, _ body: (TaskQueue) -> Void) async throws {
    let queue = TaskQueue(clock: clock)
    body(queue)
    await queue.register(Note.self) { [clock] note, _ in
      if note.text == "ends" { queue.beginShutDown() }
      try await clock.sleep(for: .seconds(1))
    }
    await queue.registerFallback { _, _ in _ = queue.name }
    try await queue.enqueue(Note(end == .byHandler ? "ends" : "a"))
    switch end {
    case .withoutRun: await queue.shutDown()
    case .afterRun:
      try await queue.runAvailable()
      await queue.shutDown()
    case .duringRun, .withinLimit, .byHandler, .destroyed:
      async let run: Void = queue.run()
      try await clock.sleep(for: .milliseconds(500))
      switch end {
      case .withinLimit: await queue.shutDown(within: .zero)
      case .destroyed: try await queue.destroy()
      case .byHandler: break
      default: await queue.shutDown()
      }
      try await run
    }
    await queue.register(Note.self) { _, _ in _ = queue.name }
    await queue.registerFallback { _, _ in _ = queue.name }
  }

  @Test(arguments: End.allCases)
  func `an ended queue is released even if its handlers retain it`(end: End) async throws {
    weak var queue: TaskQueue?
    try await useQueue(endedBy: end) { queue = $0 }
    #expect(queue == nil)
  }

  @Test(arguments: End.allCases)
  func `observers of an ended queue get all events, and then their event sequences end`(end: End)
    async throws
  {
    let log = Log<TaskEvents>()
    let retained = Log<TaskQueue>()
    try await useQueue(endedBy: end) { queue in
      retained.add(queue)
      log.add(queue.events)
    }
    var kinds: [String] = []
    for await event in log.entries[0] { kinds.append("\("\(event)".prefix { $0 != ":" })") }
    let last =
      switch end {
      case .withoutRun: ["enqueued"]
      case .afterRun, .duringRun, .byHandler: ["enqueued", "started", "succeeded"]
      case .withinLimit, .destroyed: ["enqueued", "started", "released"]
      }
    #expect(kinds == last)
    for await event in retained.entries[0].events { Issue.record("\(event)") }
  }

  @Test func `a task added after the shutdown isn't reported as lacking a handler`() async throws {
    let queue = TaskQueue(clock: clock)
    let events = queue.events
    await queue.register(Note.self) { _, _ in }
    await queue.shutDown()
    try await queue.enqueue(Note("later"))
    for await event in events { Issue.record("\(event)") }
    #expect(try await queue.count == 1)
    #expect(queue.core.observers.events.announcementCount == 0)
  }

  @Test func `a new queue can open the file after a shutdown releases the old queue's handlers`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      func useAndShutDown() async throws {
        let queue = TaskQueue(persistence: .jsonFile(at: url), clock: clock)
        await queue.register(Note.self) { _, _ in _ = queue.name }
        try await queue.enqueue(Note("a"), availableDate: clock.date + 60)
        try await queue.runAvailable()
        await queue.shutDown()
      }
      try await useAndShutDown()
      let store = JSONFileStore(at: url)
      #expect(try await TaskQueue(persistence: store, clock: clock).count == 1)
      try await store.close()
    }
  }
}
