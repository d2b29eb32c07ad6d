import SystemFoundation

/// A store that passes each call to its base, another store, unless the wrapper overrides the
/// method.
protocol StoreWrapper: UnsharedStore, CustomStringConvertible {
  var base: any Persistence { get }
}

extension StoreWrapper {
  var description: String { "\(base)" }
  var appliesAtOnce: Bool { base.appliesAtOnce }
  var claimBatch: Int { base.claimBatch }
  var sharing: StoreSharing? { base.sharing }
  var hasOneClock: Bool { base.hasOneClock }
  var hints: AsyncStream<Void>? { base.hints }
  var use: (any StoreUse)? { base.useIfKnown }

  func setWaiting(_ waits: Bool) { (base as? any UnsharedStore)?.setWaiting(waits) }

  func open() async throws { try await base.open() }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await base.apply(batch, durability: durability)
  }

  func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func contains(_ filter: TaskFilter) async throws -> Bool { try await base.contains(filter) }

  func census(at now: Date) async throws -> TaskCensus { try await base.census(at: now) }

  func value(named name: String) async throws -> [UInt8]? { try await base.value(named: name) }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix)
  }

  func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: record, onDuplicate: policy)
  }

  func close() async throws { try await base.close() }
  func destroy() async throws { try await base.destroy() }
}
