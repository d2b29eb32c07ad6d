import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// What tasks remember in a store that seals payloads.
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

  @Test func `values are sealed, and those that are open stay so`() async throws {
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
    let kept = try await base.memory(of: .numbered(1))
    #expect(kept.names == found.names)
    #expect(kept["late"] == [])
    for name in ["step", "open"] {
      #expect(kept[name]?.isEmpty == false && kept[name] != secret, "\(name)")
    }
    let suspension = TaskChange.suspend(lease, until: .distantFuture, awaiting: ["open"])
    #expect(try await store.apply([suspension], durability: .durable) == [.done])
    let record = try await store.tasks(matching: TaskFilter(), after: nil, limit: 1)[0]
    #expect(record.state == .waiting)
  }

  @Test func `a value opens only for its task and its name`() async throws {
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
}
