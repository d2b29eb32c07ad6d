package import SteadfastQueue
package import SystemFoundation

/// A store that forwards to another store every call that it does not implement itself.
package protocol ForwardingStore: Persistence {
  /// The other store.
  var base: any Persistence { get }
}

extension ForwardingStore {
  package var claimBatch: Int { base.claimBatch }
  package var sharing: StoreSharing? { base.sharing }
  package var hasOneClock: Bool { base.hasOneClock }

  package func open() async throws { try await base.open() }

  package func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await base.apply(batch, durability: durability)
  }

  package func claim(_ request: ClaimRequest) async throws -> Claim {
    try await base.claim(request)
  }

  package func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
  }

  package func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  package func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(filter)
  }

  package func census(at now: Date) async throws -> TaskCensus { try await base.census(at: now) }

  package func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: name)
  }

  package func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix)
  }

  package func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }
  package func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: record, onDuplicate: policy)
  }
  package func close() async throws { try await base.close() }
  package func destroy() async throws { try await base.destroy() }
}
