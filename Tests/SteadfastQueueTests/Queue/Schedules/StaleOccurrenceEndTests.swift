import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests calls that try to end an occurrence after another process has claimed it.
@Suite(.virtualTime) struct StaleOccurrenceEndTests {
  let bench: ScheduleBench
  let shared = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
  )

  init() throws { bench = try ScheduleBench() }

  /// A call that reads the store before another process changes it.
  enum Call: CaseIterable {
    case cancel
    case cancelAll
    case change
  }

  @Test(arguments: Call.allCases)
  func `an occurrence that another process claims while this queue ends isn't duplicated`(
    call: Call
  ) async throws {
    let running = await bench.makeQueue(on: shared.process())
    let store = InterruptedStore(shared.process())
    let queue = await bench.makeQueue(on: store)
    try await running.schedule("s", .hours, Note("takes 2.5"))
    let id = try #require(try await queue.tasks().first?.id)
    let events = queue.events
    async let reported = events.reduce(into: [String]()) { texts, event in
      if case .enqueued = event { texts.append("enqueued") }
    }
    try await withRunning(running) {
      store.beforeNextBatch { try await bench.advance(hours: 1.1) }
      switch call {
      case .cancel: #expect(try await queue.cancel(id))
      case .cancelAll: #expect(try await queue.cancelAll() == 1)
      case .change: try await queue.schedule("s", .hours, Note("new"))
      }
      let tasks = try await queue.tasks().map(\.id)
      #expect(tasks.count == 2 && tasks.first == id)
      #expect(try await queue.schedules().map(\.occurrence) == [tasks.last])
      try await bench.advance(hours: 3.1)
    }
    await queue.shutDown()
    #expect(await reported == (call == .change ? ["enqueued"] : []))
    // If the first occurrence is cut short, the second one begins in time. Otherwise, one
    // occurrence makes up for the dates in between.
    #expect(bench.log.entries.map(\.date).prefix(2) == (call == .change ? [1, 3] : [1, 2]))
    #expect(bench.log.entries.map(\.now).prefix(2) == (call == .change ? [1, 3.5] : [1, 2]))
    let second = call == .change ? "new" : "takes 2.5"
    #expect(bench.log.entries.map(\.text).prefix(2) == ["takes 2.5", second])
  }

  @Test
  func `a late result adds no occurrence while another process performs the same occurrence`()
    async throws
  {
    let stopped = shared.process()
    let first = await bench.makeQueue(on: stopped)
    let second = await bench.makeQueue(on: shared.process())
    try await first.schedule("s", .hours, Note("takes 2.5"))
    let id = try #require(try await first.tasks().first?.id)
    try await withRunning(first) {
      try await bench.advance(hours: 1.1)
      stopped.die()
      try await withRunning(second) {
        // The lease has expired, and the second queue performs the occurrence until after 3.6 h.
        try await bench.advance(hours: 2.45)
        #expect(bench.log.entries.map(\.date) == [1, 1])
        stopped.revive()
        try await bench.advance(hours: 0.02)
        let tasks = try await second.tasks().map(\.id)
        #expect(tasks.count == 2 && tasks.first == id)
        #expect(try await second.schedules().map(\.occurrence) == [tasks.last])
        try await bench.advance(hours: 0.2)
      }
    }
    #expect(bench.log.entries.map(\.date) == [1, 1, 3])
  }

  @Test func `occurrences don't overlap if a process dies when it cancels one that begins`()
    async throws
  {
    let running = await bench.makeQueue(on: shared.process())
    let dying = shared.process()
    let store = InterruptedStore(dying)
    let queue = await bench.makeQueue(on: store)
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
        let hours = try await running.tasks().map { bench.hoursFromStart(to: $0.availableDate) }
        #expect(hours == [1, 2])
        try await bench.advance(hours: 4)
        tasks.cancelAll()
        _ = await tasks.nextResult()
      }
    }
    // The occurrence of hour 1 ends at hour 3.5, and one occurrence makes up for hours 2 and 3.
    #expect(bench.log.entries.map(\.date) == [1, 3])
    #expect(bench.log.entries.map(\.now) == [1, 3.5])
    #expect(bench.log.entries.map(\.missed) == [0, 1])
  }

  @Test func `a schedule continues after another program removes its occurrence`() async throws {
    let base = InMemoryStore()
    let store = InterruptedStore(base)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    store.beforeNextBatch {
      let change = TaskChange.cancel(.unclaimed(id), at: bench.start, retains: false)
      _ = try await base.apply([change], durability: .durable)
    }
    #expect(try await queue.cancel(id) == false)
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
  }
}
