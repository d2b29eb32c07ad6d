import Synchronization

/// A store that makes calls again whose errors are transient, in front of another store.
final class PatientStore: UnsharedStore, CustomStringConvertible {
  let base: any Persistence
  let patience: StorePatience
  /// New tasks that are being stored, and whether a claim has returned them already.
  ///
  /// The answer to the first sending may be lost, and the task performed and removed before the
  /// next one, which would then add it a second time.
  private let insertions = Mutex<[TaskID: Bool]>([:])

  init(_ base: any Persistence, _ patience: StorePatience) {
    self.base = base
    self.patience = patience
  }

  var description: String { "\(base)" }
  var appliesAtOnce: Bool { base.appliesAtOnce }
  var claimBatch: Int { base.claimBatch }
  var sharing: StoreSharing? { base.sharing }
  var hasOneClock: Bool { base.hasOneClock }
  var hints: AsyncStream<Void>? { base.hints }
  var use: (any StoreUse)? { base.useIfKnown }

  func open() async throws { try await repeating(.open) { try await base.open() } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await send(batch, durability).outcomes
  }

  /// Stores a batch, and tells whether it was sent more than once.
  func send(
    _ batch: [TaskChange],
    _ durability: Durability,
    _ call: StorePatience.Call = .other
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    let new = batch.compactMap(\.newTaskID)
    if !new.isEmpty { insertions.withLock { for id in new { $0[id] = false } } }
    defer { if !new.isEmpty { insertions.withLock { for id in new { $0[id] = nil } } } }
    // A comparison with a value that the first sending has set would fail.
    let isRepeatable = !batch.contains(where: \.comparesValue)
    var retries = 0
    while true {
      do {
        let outcomes = try await sendOnce(batch, durability, isFirst: retries == 0)
        return (outcomes, retries > 0)
      } catch {
        guard isRepeatable, await patience.waits(after: error, retries: retries, call) else {
          throw error
        }
        retries += 1
      }
    }
  }

  /// Sends a batch without the new tasks that a claim has returned, which are stored.
  private func sendOnce(
    _ batch: [TaskChange],
    _ durability: Durability,
    isFirst: Bool
  ) async throws -> [ChangeOutcome] {
    let claimed = isFirst ? [] : Set(insertions.withLock { $0.filter(\.value) }.keys)
    func isStored(_ change: TaskChange) -> Bool { change.newTaskID.map(claimed.contains) ?? false }
    guard !claimed.isEmpty else { return try await base.apply(batch, durability: durability) }
    let rest = batch.filter { !isStored($0) }
    let outcomes = rest.isEmpty ? [] : try await base.apply(rest, durability: durability)
    guard outcomes.count == rest.count else { return outcomes }
    var next = outcomes.makeIterator()
    return batch.compactMap { isStored($0) ? .done : next.next() }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await repeating(.claim) { try await base.claim(request) }
    if !claim.tasks.isEmpty {
      insertions.withLock { insertions in
        guard !insertions.isEmpty else { return }
        for task in claim.tasks where insertions[task.lease.id] != nil {
          insertions[task.lease.id] = true
        }
      }
    }
    return claim
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await repeating { try await base.tasks(matching: filter, after: id, limit: limit) }
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await repeating { try await base.count(matching: filter) }
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await repeating { try await base.contains(filter) }
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await repeating { try await base.value(named: name) }
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    try await repeating { try await base.memory(of: id) }
  }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: record, onDuplicate: policy)
  }

  func close() async throws { try await base.close() }
  func destroy() async throws { try await base.destroy() }

  private func repeating<Value: Sendable>(
    _ kind: StorePatience.Call = .other,
    _ call: () async throws -> Value
  ) async throws -> Value {
    var retries = 0
    while true {
      do {
        return try await call()
      } catch {
        guard await patience.waits(after: error, retries: retries, kind) else { throw error }
        retries += 1
      }
    }
  }
}

extension Persistence {
  /// Whether an error of the store may be transient.
  ///
  /// The stores in memory and in a file have no such errors, and are called without a detour.
  var mayFailTransiently: Bool {
    switch self {
    case let store as SealedStore: store.base.mayFailTransiently
    case let store as GroupStore: store.base.mayFailTransiently
    case let store as any UnsharedStore: store.hasTransientErrors
    // It waits for nothing that could be gone.
    default: !appliesAtOnce
    }
  }
}

extension TaskChange {
  fileprivate var comparesValue: Bool { if case .setValue = self { true } else { false } }
}
