import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Ends of occurrences that come too late, because another process performs them.
@Suite(.virtualTime) struct StaleOccurrenceEndTests {
  let bench: ScheduleBench
  let shared = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
  )

  init() throws { bench = try ScheduleBench() }

  /// What a caller does whose look at the store is overtaken.
  enum Call: CaseIterable {
    case cancel
    case cancelAll
    case change
  }

  @Test(arguments: Call.allCases)
  func `an occurrence that another process claims in between has no other beside it`(
    call: Call
  ) async throws {
    let running = await bench.queue(shared.process())
    let store = InterruptedStore(shared.process())
    let queue = await bench.queue(store)
    try await running.schedule("s", .hours, Note("takes 2.5"))
    let id = try #require(try await queue.tasks().first?.id)
    let events = queue.events
    async let told = events.reduce(into: [String]()) { texts, event in
      if case .enqueued = event { texts.append("enqueued") }
    }
    try await withRunning(running) {
      store.beforeNextBatch { try await bench.advance(hours: 1.1) }
      switch call {
      case .cancel: #expect(try await queue.cancel(id) == false)
      case .cancelAll: #expect(try await queue.cancelAll() == 0)
      case .change: try await queue.schedule("s", .hours, Note("new"))
      }
      #expect(try await queue.tasks().map(\.id) == [id])
      #expect(try await queue.schedules().map(\.occurrence) == [id])
      try await bench.advance(hours: 3.1)
    }
    await queue.shutDown()
    #expect(await told == [])
    // The dates that came in between are made up for once.
    #expect(bench.log.entries.map(\.date).prefix(2) == [1, 3])
    #expect(bench.log.entries.map(\.now).prefix(2) == [1, 3.5])
    let second = call == .change ? "new" : "takes 2.5"
    #expect(bench.log.entries.map(\.text).prefix(2) == ["takes 2.5", second])
  }

  @Test func `the end of a process that was stopped adds nothing beside the attempt of another`()
    async throws
  {
    let stopped = shared.process()
    let first = await bench.queue(stopped)
    let second = await bench.queue(shared.process())
    try await first.schedule("s", .hours, Note("takes 2.5"))
    let id = try #require(try await first.tasks().first?.id)
    try await withRunning(first) {
      try await bench.advance(hours: 1.1)
      stopped.die()
      try await withRunning(second) {
        // The lease has run out, and the second queue performs the occurrence until after 3.6.
        try await bench.advance(hours: 2.45)
        #expect(bench.log.entries.map(\.date) == [1, 1])
        stopped.revive()
        try await bench.advance(hours: 0.02)
        #expect(try await second.tasks().map(\.id) == [id])
        #expect(try await second.schedules().map(\.occurrence) == [id])
        try await bench.advance(hours: 0.2)
      }
    }
    #expect(bench.log.entries.map(\.date) == [1, 1, 3])
  }

  @Test func `a process that dies before it has taken a step back costs one overlap, and no date`()
    async throws
  {
    let running = await bench.queue(shared.process())
    let dying = shared.process()
    let store = InterruptedStore(dying)
    let queue = await bench.queue(store)
    try await running.schedule("s", .hours, Note("takes 2.5"))
    let id = try #require(try await queue.tasks().first?.id)
    try await withRunning(running) {
      try await withThrowingTaskGroup { tasks in
        store.beforeNextBatch {
          // The running queue claims the occurrence. The process dies before its next batch.
          try await bench.advance(hours: 1.1)
          store.beforeNextBatch { dying.die() }
        }
        tasks.addTask { _ = try await queue.cancel(id) }
        try await bench.advance(hours: 1.5)
        #expect(try await running.tasks().map { bench.hours($0.availableDate) } == [1, 2])
        try await bench.advance(hours: 4)
        tasks.cancelAll()
        await #expect(throws: CancellationError.self) { try await tasks.waitForAll() }
      }
    }
    // The one of date 2 begins beside the first, whose end at 3.5 adds nothing. The dates 3 and 4
    // are made up for once, as ever.
    #expect(bench.log.entries.map(\.date) == [1, 2, 4])
    #expect(bench.log.entries.map(\.now) == [1, 2, 4.5])
    #expect(bench.log.entries.map(\.missed) == [0, 0, 1])
  }

  @Test func `a schedule goes on if its occurrence was removed by another program`() async throws {
    let base = InMemoryStore()
    let store = InterruptedStore(base)
    let queue = await bench.queue(store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    store.beforeNextBatch {
      let change = TaskChange.cancel(.unclaimed(id), at: bench.start, retains: false)
      _ = try await base.apply([change], durability: .durable)
    }
    #expect(try await queue.cancel(id) == false)
    #expect(try await queue.tasks().map { bench.hours($0.availableDate) } == [2])
  }
}
