import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the values that an application stores with a queue.
@Suite(.virtualTime) struct ValueTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: any Persistence) -> TaskQueue {
    TaskQueue(persistence: store, clock: clock)
  }

  @Test(arguments: StoreKind.allCases)
  func `a value can be read back unchanged, also by another queue`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let first = makeQueue(on: store)
      #expect(try await first.value(named: "cursor") == nil)
      try await first.setValue([0, 1, 255], named: "cursor")
      try await first.setValue([2], named: "relaxed", durability: .relaxed)
      #expect(try await first.value(named: "cursor") == [0, 1, 255])
      let second = makeQueue(on: store)
      #expect(try await second.value(named: "cursor") == [0, 1, 255])
      #expect(try await second.value(named: "relaxed") == [2])
      try await second.setValue([], named: "cursor")
      #expect(try await first.value(named: "cursor") == [])
      try await second.setValue(nil, named: "cursor")
      #expect(try await first.value(named: "cursor") == nil)
      #expect(try await first.count == 0)
    }
  }

  @Test func `a value persists in the file, and is removed when the queue is destroyed`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await makeQueue(on: store).setValue(Array("page 7".utf8), named: "cursor")
      try await store.close()
      let next = JSONFileStore(at: file)
      let again = makeQueue(on: next)
      #expect(try await again.value(named: "cursor") == Array("page 7".utf8))
      try await again.destroy()
      await #expect(throws: JSONFileError.self) { try await again.value(named: "cursor") }
      let last = JSONFileStore(at: file)
      #expect(try await makeQueue(on: last).value(named: "cursor") == nil)
      try await last.close()
    }
  }

  @Test func `a conditional change doesn't replace another caller's value`() async throws {
    let store = SharedStore(StoreSharing())
    let (a, b) = (makeQueue(on: store.process()), makeQueue(on: store.process()))
    #expect(try await a.setValue([1], named: "leader", replacing: nil))
    #expect(try await !b.setValue([2], named: "leader", replacing: nil))
    #expect(try await !b.setValue([2], named: "leader", replacing: [0]))
    #expect(try await b.value(named: "leader") == [1])
    #expect(try await b.setValue([2], named: "leader", replacing: [1], durability: .relaxed))
    #expect(try await b.setValue(nil, named: "leader", replacing: [2]))
    #expect(try await a.setValue([3], named: "leader", replacing: nil))
  }

  @Test func `an unconditional change succeeds despite concurrent changes`() async throws {
    let store = FaultInjectingStore()
    store.inject(.delay(.milliseconds(1), on: clock), .afterEffect, times: nil) {
      $0.kind == .value
    }
    let queue = makeQueue(on: store)
    try await queue.open()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<20 {
        group.addTask { try await queue.setValue([UInt8(number)], named: "a") }
      }
      try await group.waitForAll()
    }
    #expect(try await queue.value(named: "a") != nil)
    let sets = store.calls.count { $0.changes.contains("setValue") }
    #expect(sets > 20)
  }

  @Test func `a store that always reports a different value causes an error rather than a hang`()
    async throws
  {
    struct Wrong: ForwardingStore {
      let base: any Persistence = InMemoryStore()
      let outcomes: [ChangeOutcome]
      func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
        outcomes
      }
    }
    let wrong = makeQueue(on: Wrong(outcomes: [.valueDiffers]))
    let error = await queueError { try await wrong.setValue([1], named: "a") }
    #expect(error?.code == .storeFailed)
    for outcomes: [ChangeOutcome] in [[], [.stale], [.batchRefused]] {
      let wrong = makeQueue(on: Wrong(outcomes: outcomes))
      await #expect(throws: MismatchedOutcomes.self) { try await wrong.setValue([1], named: "a") }
    }
  }

  @Test(arguments: ["steadfast.", "steadfast.pause", "steadfast.mine"])
  func `names reserved for the package are rejected`(name: String) async throws {
    let queue = makeQueue(on: InMemoryStore())
    let calls: [@Sendable () async throws -> Void] = [
      { _ = try await queue.value(named: name) }, { try await queue.setValue([1], named: name) },
      { _ = try await queue.setValue([1], named: name, replacing: nil) },
    ]
    for call in calls {
      let error = await queueError(call)
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains("'\(name)'") == true)
    }
  }

  @Test func `a name or a value that can't be stored is rejected`() async throws {
    let queue = makeQueue(on: InMemoryStore())
    let long = [UInt8](repeating: 0, count: 65_537)
    let names = ["", "a\0", String(repeating: "n", count: 1_025)]
    for (name, value) in names.map({ ($0, [1]) }) + [("a", long)] {
      let error = await queueError { try await queue.setValue(value, named: name) }
      #expect(error?.code == .invalidArgument)
    }
    for name in ["steadfast", "Steadfast.a", String(repeating: "n", count: 1_024)] {
      try await queue.setValue(Array(long.dropLast()), named: name)
    }
  }
}
