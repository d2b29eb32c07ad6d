@testable import SteadfastQueue

/// A store that passes on to another one what it does not do itself.
protocol ForwardingStore: Persistence {
  var base: any Persistence { get }
}

extension ForwardingStore {
  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await base.apply(batch, durability: durability)
  }

  func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func contains(_ filter: TaskFilter) async throws -> Bool { try await base.contains(filter) }

  func value(named name: String) async throws -> [UInt8]? { try await base.value(named: name) }
  func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }

  func destroy() async throws { try await base.destroy() }
}
