import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Applies batches of changes to all stores.
@Suite(.virtualTime) struct BatchTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test(arguments: StoreKind.allCases)
  func `a batch with a rejected task adds no tasks`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      let twin = try await queue.enqueue(Note("b"), uniqueKey: "b")
      let error = await #expect(throws: TaskQueueError.self) {
        try await queue.enqueue(
          contentsOf: ["a", "b", "c"].map(Note.init),
          options: TaskOptions(onDuplicate: .reject),
          uniqueKey: \.text
        )
      }
      #expect(error?.code == .duplicate)
      #expect(error?.message.contains(twin.id.description) == true)
      #expect(try await queue.count == 1)
      let tasks = try await queue.enqueue(
        contentsOf: ["a", "c"].map(Note.init),
        options: TaskOptions(onDuplicate: .reject),
        uniqueKey: \.text
      )
      #expect(tasks.map(\.isNew) == [true, true])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `two tasks of one batch with the same key are duplicates too`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      let notes = ["same", "same"].map(Note.init)
      await #expect(throws: TaskQueueError.self) {
        try await queue.enqueue(
          contentsOf: notes,
          options: TaskOptions(onDuplicate: .reject),
          uniqueKey: \.text
        )
      }
      #expect(try await queue.count == 0)
      let tasks = try await queue.enqueue(contentsOf: notes, uniqueKey: \.text)
      #expect(tasks.map(\.isNew) == [true, false])
      #expect(tasks[0].id == tasks[1].id)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task gets another ID if its ID is taken`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      // Two queues with the same seed draw the same IDs, as two processes might by chance.
      let seeded = TaskQueueConfiguration(randomness: .seeded(7))
      let first = TaskQueue(persistence: store, configuration: seeded, clock: clock)
      let second = TaskQueue(persistence: store, configuration: seeded, clock: clock)
      let task = try await first.enqueue(Note("a"))
      let others = try await second.enqueue(contentsOf: ["b", "c"].map(Note.init))
      #expect(Set([task.id] + others.map(\.id)).count == 3)
      #expect(try await second.count == 3)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a batch with an invalid change is rejected`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let never = Date(timeIntervalSince1970: .nan)
      var negative = TaskRecord.make(1)
      negative.retryCount = -1
      var running = TaskRecord.make(1)
      running.state = .running
      var endless = TaskRecord.make(1)
      endless.availableDate = Date(timeIntervalSince1970: .infinity)
      let lease = Lease(id: .numbered(1), token: 1)
      let nonsense: [TaskChange] = [
        .insert(negative, onDuplicate: .keep), .insert(running, onDuplicate: .keep),
        .insert(endless, onDuplicate: .keep), .succeed(lease, at: never, retains: true),
        .retry(lease, availableDate: .seconds(0), retryCount: -1, failure: nil),
        .retry(lease, availableDate: never, retryCount: 0, failure: nil),
        .abandon(lease, failure: TaskFailure(reason: "", date: never), retains: true),
        .cancel(.unclaimed(.numbered(1)), at: never, retains: true),
        .restart(.unclaimed(.numbered(1)), availableDate: never), .rebase(never),
        .prune(.succeeded, endedBefore: never, keepingLatest: nil, now: .distantPast),
        .prune(.succeeded, endedBefore: nil, keepingLatest: -1, now: .distantPast),
      ]
      for change in nonsense {
        let error = await #expect(throws: TaskQueueError.self, "\(change)") {
          try await store.apply(
            [.insert(.make(2), onDuplicate: .keep), change],
            durability: .durable
          )
        }
        #expect(error?.code == .invalidArgument)
      }
      let count = try await store.count(matching: TaskFilter())
      #expect(count == 0)
    }
  }

  @Test func `removed tasks leave no names or tree nodes in a table`() {
    var table = TaskTable()
    for number in 0..<20_000 {
      table.insert(.make(number, name: "name \(number)", key: "k"))
      let id = TaskID.numbered(number)
      let end = TaskChange.cancel(.unclaimed(id), at: .seconds(0), retains: false)
      if number > 0 { #expect(table.apply([end]) == [.done]) }
    }
    #expect(table.lanes.all.count <= 2)
    #expect(table.lanes.queues[0].indices.count == 1)
    #expect(table.keys.roles(of: "k").count == 1)
    for number in 20_000..<40_000 { table.insert(.make(number, key: "k"), onDuplicate: .replace) }
    #expect(table.entries.count == 2)
    let nodes = table.waiting.count + table.lanes.all.reduce(0) { $0 + $1.ready.count }
    #expect(nodes < 4_000)
  }
}
