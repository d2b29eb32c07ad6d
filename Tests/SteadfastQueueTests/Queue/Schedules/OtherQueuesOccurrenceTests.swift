import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests occurrences that are ended by another queue than the schedule's own queue.
@Suite(.virtualTime) struct OtherQueuesOccurrenceTests {
  let bench: ScheduleBench
  private let names = ["a", "b", "default"]
  private let all = TaskFilter(queue: nil)

  init() throws { bench = try ScheduleBench() }

  /// Makes a group of queues, each with a schedule of the same name.
  private func makeGroup(
    on store: some Persistence = InMemoryStore(),
    names: [String]? = nil,
    text: String? = nil
  ) async throws -> TaskQueueGroup {
    let group = TaskQueueGroup(persistence: store, clock: bench.clock) {
      await bench.registerHandler(in: $0)
    }
    for name in names ?? self.names {
      try await group.addQueue(name).schedule("s", .hours, Note(text ?? name))
    }
    return group
  }

  /// Returns the hours of each queue's tasks.
  private func taskHours(in group: TaskQueueGroup) async throws -> [String: [Double]] {
    Dictionary(grouping: try await group.tasks(), by: \.queue)
      .mapValues { $0.map { bench.hoursFromStart(to: $0.availableDate) } }
  }

  private func run(_ group: TaskQueueGroup, hours: Double) async throws {
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      try await bench.advance(hours: hours)
      await group.shutDown()
      try await tasks.waitForAll()
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `if another queue of the group ends an occurrence, the next follows in its own queue`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let group = try await makeGroup(on: store)
      for (index, queue) in group.queues.enumerated() {
        #expect(try await queue.cancel(matching: all) == 3)
        let hour = Double(2 * index + 2)
        #expect(try await taskHours(in: group) == ["": [hour], "a": [hour], "b": [hour]])
        #expect(try await queue.remove(matching: all) == 3)
        let next = try await taskHours(in: group)
        #expect(next == ["": [hour + 1], "a": [hour + 1], "b": [hour + 1]])
      }
      for queue in group.queues {
        let task = try #require(try await queue.tasks().first)
        #expect(try await queue.schedules().map(\.occurrence) == [task.id])
        #expect(try task.payload(as: Note.self) == Note(queue.name))
      }
      try await run(group, hours: 8.5)
      #expect(bench.log.entries.map(\.date) == [7, 7, 7, 8, 8, 8])
      #expect(bench.log.entries.prefix(3).map(\.text).sorted() == names)
    }
  }

  @Test func `the running queue is notified of a new occurrence, and reports missed dates`()
    async throws
  {
    let group = try await makeGroup()
    let (a, b) = (try group.queue(named: "a"), try group.queue(named: "b"))
    let events = [a.events, b.events]
    async let reported = withTaskGroup { tasks in
      for (index, events) in events.enumerated() {
        tasks.addTask {
          await events.reduce(into: [String]()) { texts, event in
            switch event {
            case .enqueued: texts.append("\(index): enqueued")
            case .occurrencesMissed(_, let count, _): texts.append("\(index): \(count) missed")
            default: break
            }
          }
        }
      }
      return await tasks.reduce(into: [String]()) { $0 += $1 }.sorted()
    }
    try await withThrowingTaskGroup { tasks in
      await b.pause()
      tasks.addTask { try await group.run() }
      try await bench.advance(hours: 3.5)
      #expect(try await a.cancel(matching: TaskFilter(queue: nil, states: [.waiting])) == 3)
      await b.resume()
      try await bench.advance(hours: 0.25)
      await group.shutDown()
      try await tasks.waitForAll()
    }
    #expect(bench.log.entries.filter { $0.text == "b" }.map(\.date) == [3])
    // Of the dates 1, 2 and 3, the first is cancelled, and the last makes up for the second.
    let fromA = Array(repeating: "0: enqueued", count: 4)
    #expect(await reported == fromA + ["1: 1 missed", "1: enqueued", "1: enqueued"])
  }

  @Test(arguments: StoreKind.allCases)
  func `a queue outside the group can end occurrences of the group`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let group = try await makeGroup(on: store)
      let operating = TaskQueue(persistence: store, clock: bench.clock)
      let events = operating.events
      #expect(try await operating.cancel(matching: all) == 3)
      // The group's queues advance their schedules when they run.
      try await run(group, hours: 2.5)
      #expect(bench.log.entries.map(\.date) == [2, 2, 2])
      // This queue needs no handlers for the group's tasks.
      await operating.shutDown()
      for await event in events {
        if case .unhandled(let record, _) = event { #expect(record.queue == "") }
      }
    }
  }

  @Test
  func `if a process without the occurrence's queue ends an occurrence, the next one follows`()
    async throws
  {
    let shared = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
    )
    let running = try await makeGroup(on: shared.process(), names: ["b"])
    let other = try await makeGroup(on: shared.process(), names: ["a"])
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await running.run() }
      try await bench.advance(hours: 0.5)
      #expect(try await other.queue(named: "a").cancel(matching: all) == 2)
      try await bench.advance(hours: 2)
      await running.shutDown()
      try await tasks.waitForAll()
    }
    #expect(bench.log.entries.map(\.text) == ["b"] && bench.log.entries.map(\.date) == [2])
    #expect(try await taskHours(in: other) == ["a": [2], "b": [3]])
  }

  @Test func `an occurrence that its queue claims while another queue ends it isn't duplicated`()
    async throws
  {
    let shared = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
    )
    let running = try await makeGroup(on: shared.process(), names: ["b"], text: "takes 2.5")
    let store = InterruptedStore(shared.process())
    let other = TaskQueueGroup(persistence: store, clock: bench.clock)
    let queue = try await other.addQueue("a")
    let id = try #require(try await running.tasks().first?.id)
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await running.run() }
      store.beforeNextBatch { try await bench.advance(hours: 1.1) }
      #expect(try await queue.cancel(matching: all) == 0)
      let ids = try await running.tasks().map(\.id)
      #expect(ids.count == 2 && ids.first == id)
      #expect(try await running.queue(named: "b").schedules().map(\.occurrence) == [ids.last])
      try await bench.advance(hours: 3.1)
      await running.shutDown()
      try await tasks.waitForAll()
    }
    // One occurrence makes up for the dates in between.
    #expect(bench.log.entries.map(\.date) == [1, 3])
    #expect(bench.log.entries.map(\.now) == [1, 3.5])
  }
}
