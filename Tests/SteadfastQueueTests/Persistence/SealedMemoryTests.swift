import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// Tests that a sealed store also seals the values in the memory of tasks.
@Suite struct SealedMemoryTests {
  private let base = InMemoryStore()
  private let secret = Array("a secret".utf8)

  private func claim(_ store: some Persistence, _ numbers: Int...) async throws -> [Lease] {
    for number in numbers {
      _ = try await store.apply([.insert(.make(number), onDuplicate: .keep)], durability: .durable)
    }
    let request = ClaimRequest(limit: 9, names: ["Note": 9], now: .seconds(0))
    return try await store.claim(request).tasks.map(\.lease)
  }

  @Test func `values are sealed, except the empty values that mark open completions`() async throws
  {
    let store = base.sealingPayloads(with: TestSeal().payloadSeal)
    let lease = try await claim(store, 1)[0]
    let outcomes = try await store.apply(
      [
        .remember(lease, named: "step", value: secret),
        .remember(lease, named: "open", value: []),
        .remember(lease, named: "late", value: []),
      ],
      durability: .durable
    )
    #expect(outcomes == [.done, .done, .done])
    for expected: ChangeOutcome in [.done, .stale] {
      let completion = TaskChange.complete(.numbered(1), named: "open", value: secret)
      #expect(try await store.apply([completion], durability: .durable) == [expected])
    }
    let found = try await store.memory(of: .numbered(1))
    #expect(found["step"] == secret && found["open"] == secret && found["late"] == [])
    let stored = try await base.memory(of: .numbered(1))
    #expect(stored.names == found.names)
    #expect(stored["late"] == [])
    for name in ["step", "open"] {
      #expect(stored[name]?.isEmpty == false && stored[name] != secret, "\(name)")
    }
    let suspension = TaskChange.suspend(lease, until: .distantFuture, awaiting: ["open"])
    #expect(try await store.apply([suspension], durability: .durable) == [.done])
    let record = try await store.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
    #expect(record.state == .waiting)
  }

  @Test func `a value can be opened only under its task and its name`() async throws {
    let store = base.sealingPayloads(with: TestSeal().payloadSeal)
    let leases = try await claim(store, 1, 2)
    let step = TaskChange.remember(leases[0], named: "step", value: secret)
    _ = try await store.apply([step], durability: .durable)
    let sealed = try #require(try await base.memory(of: .numbered(1))["step"])
    _ = try await base.apply(
      [.remember(leases[1], named: "step", value: sealed)],
      durability: .durable
    )
    let error = await #expect(throws: TaskQueueError.self) {
      try await store.memory(of: .numbered(2))
    }
    #expect(error?.code == .unopenedPayload)
    #expect(error?.message.contains("'step'") == true)
    _ = try await base.apply(
      [.remember(leases[0], named: "other", value: sealed)],
      durability: .durable
    )
    await #expect(throws: TaskQueueError.self) { try await store.memory(of: .numbered(1)) }
  }

  // MARK: Plain values

  @Test func `a sealed value that can't be opened is not treated as a plain one`() async throws {
    let seal = TestSeal(keys: [1])
    let store = base.sealingPayloads(with: seal.payloadSeal, acceptsPlain: true)
    let lease = try await claim(store, 1)[0]
    let step = TaskChange.remember(lease, named: "step", value: Array("true".utf8))
    _ = try await store.apply([step], durability: .durable)
    seal.setKeys(2)
    let error = await #expect(throws: TaskQueueError.self) {
      try await store.memory(of: .numbered(1))
    }
    #expect(error?.code == .unopenedPayload)
    #expect(error?.underlying is TestSeal.WrongKey)
    seal.setKeys(2, 1)
    let found = try await store.memory(of: .numbered(1))
    #expect(found["step"] == Array("true".utf8))
  }

  @Test(arguments: [
    ("true", true), ("7", true), (#""text""#, true), (#"{"value":[1]}"#, true),
    ("sealed", false), ("{sealed}", false), ("7}", false),
  ])
  func `an unsealed value is accepted if it is JSON and plain values are accepted`(
    text: String,
    isPlain: Bool
  ) async throws {
    let lease = try await claim(base, 1)[0]
    let value = Array(text.utf8)
    let step = TaskChange.remember(lease, named: "step", value: value)
    _ = try await base.apply([step], durability: .durable)
    let seal = TestSeal().payloadSeal
    let accepting = base.sealingPayloads(with: seal, acceptsPlain: true)
    if isPlain {
      let found = try await accepting.memory(of: .numbered(1))
      #expect(found["step"] == value)
    } else {
      await #expect(throws: TaskQueueError.self) { try await accepting.memory(of: .numbered(1)) }
    }
    let refusing = base.sealingPayloads(with: seal)
    await #expect(throws: TaskQueueError.self) { try await refusing.memory(of: .numbered(1)) }
  }

  @Test(arguments: [(#"{"name":"s"}"#, true), ("{sealed", false), ("{\u{1}}", false)])
  func `a sealed schedule that can't be opened is not treated as a plain one`(
    text: String,
    isPlain: Bool
  ) async throws {
    let name = "steadfast.schedule.s"
    let value = Array(text.utf8)
    let change = TaskChange.setValue(named: name, from: nil, to: value)
    _ = try await base.apply([change], durability: .durable)
    let store = base.sealingPayloads(with: TestSeal().payloadSeal, acceptsPlain: true)
    if isPlain {
      let found = try await store.value(named: name)
      #expect(found == value)
    } else {
      let error = await #expect(throws: TaskQueueError.self) {
        try await store.value(named: name)
      }
      #expect(error?.code == .unopenedPayload)
    }
  }

  @Test func `listing pending completions throws if they can't be opened`() async throws {
    let seal = TestSeal(keys: [1])
    let queue = TaskQueue(
      persistence: base.sealingPayloads(with: seal.payloadSeal, acceptsPlain: true)
    )
    await queue.register(Note.self) { _, context in
      try await context.completion("upload") { _ in }
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let awaited = try await queue.pendingCompletions()
    #expect(awaited.map(\.name) == ["upload"])
    seal.setKeys(2)
    await #expect(throws: TaskQueueError.self) { try await queue.pendingCompletions() }
  }
}
