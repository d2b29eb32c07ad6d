import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

#if SQLite
import SteadfastSQLite
#endif
#if PostgreSQL
import SteadfastPostgreSQL
#endif

/// The kinds of stores for the tasks of a case.
enum ModelStorage: Sendable, CaseIterable {
  case memory, suspending, suspendingAtOnce, sealed
  case file
  #if SQLite
  case database
  #endif
  #if PostgreSQL
  case server
  #endif

  /// Makes a store in the file, or in memory if `file` is `nil`.
  func store(at file: URL?) -> any Persistence {
    guard let file else { return InMemoryStore() }
    #if SQLite
    if self == .database { return SQLiteStore(at: file) }
    #endif
    #if PostgreSQL
    if self == .server, let server = StoreKind.postgreSQLServer {
      let prefix = "model_" + String(file.path.utf8.stableHash, radix: 16)
      return PostgreSQLStore(server, prefix: prefix, sharing: nil)
    }
    #endif
    return JSONFileStore(at: file)
  }
}

/// A store that records its calls in a ledger, and can suspend before and after each call.
final class ModelStore: Persistence {
  private let base: any Persistence
  private let ledger: SharedLedger
  private let suspends: Bool
  private let turns: Turns?
  private let fault: FaultPlan?
  /// A closure to call at each suspension point of the store, the handlers and the operations.
  let onSuspension = Mutex<(@Sendable () -> Void)?>(nil)
  let appliesAtOnce: Bool
  /// The maximum number of tasks that a queue prefetches.
  let claimBatch: Int

  init(
    _ base: any Persistence,
    _ ledger: SharedLedger,
    appliesAtOnce: Bool,
    suspends: Bool = false,
    claimBatch: Int = 0,
    turns: Turns? = nil,
    fault: FaultPlan? = nil
  ) {
    self.base = base
    self.ledger = ledger
    self.appliesAtOnce = appliesAtOnce
    self.suspends = suspends
    self.claimBatch = claimBatch
    self.turns = turns
    self.fault = fault
  }

  /// Reports a suspension point.
  func reportSuspensionPoint() { onSuspension.withLock(\.self)?() }

  /// Lets other Swift tasks run.
  ///
  /// The order of the virtual time's jobs decides how many.
  private func suspend() async {
    guard suspends else { return }
    reportSuspensionPoint()
    await withDiscardingTaskGroup { $0.addTask {} }
  }

  private func call<Result>(_ body: () async throws -> Result) async throws -> Result {
    await suspend()
    try await fault?.call()
    await turns?.begin()
    defer { turns?.end() }
    let result = try await body()
    await suspend()
    return result
  }

  func open() async throws { try await call { try await base.open() } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await call {
      let outcomes = try await base.apply(batch, durability: durability)
      ledger.update { $0.recordApplied(batch, outcomes) }
      return outcomes
    }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await call {
      let claim = try await base.claim(request)
      ledger.update { $0.recordClaim(claim, for: request) }
      return claim
    }
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await call {
      try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
    }
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await call { try await base.count(matching: filter) }
  }

  func census(at now: Date) async throws -> TaskCensus {
    try await call { try await base.census(at: now) }
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await call {
      let value = try await base.value(named: name)
      ledger.update { $0.read(value, named: name) }
      return value
    }
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await call { try await base.values(prefix: prefix) }
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    try await call { try await base.memory(of: id) }
  }

  func close() async throws { try await base.close() }
  func destroy() async throws { try await base.destroy() }
}

/// Admits one call at a time to a store, so that the ledger records calls in the order in which
/// they take effect.
final class Turns: Sendable {
  private struct State {
    var isTaken = false
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state = Mutex(State())

  func begin() async {
    await withCheckedContinuation { continuation in
      let isTaken = state.withLock { state in
        defer { state.isTaken = true }
        if state.isTaken { state.waiting.append(continuation) }
        return state.isTaken
      }
      if !isTaken { continuation.resume() }
    }
  }

  func end() {
    let next = state.withLock { state in
      guard !state.waiting.isEmpty else {
        state.isTaken = false
        return nil as CheckedContinuation<Void, Never>?
      }
      return state.waiting.removeFirst()
    }
    next?.resume()
  }
}

/// A ledger that concurrent tasks can update.
final class SharedLedger: Sendable {
  private let state: Mutex<ModelLedger>

  init(_ ledger: ModelLedger) { state = Mutex(ledger) }

  @discardableResult
  func update<Result: Sendable>(_ body: (inout ModelLedger) -> Result) -> Result {
    state.withLock { body(&$0) }
  }
}

/// A fault in the calls of a store.
final class FaultPlan: Sendable {
  enum Fault: Sendable, CaseIterable {
    /// The call and all later calls fail until the store is mended.
    case fails
    /// The calls hang until the store is mended, and then fail.
    case hangsAndFails
    /// The calls hang until the store is mended, and then succeed.
    case hangs
  }

  private struct State {
    var callsLeft: Int
    var count = 0
    var isMended = false
    var hanging: [CheckedContinuation<Void, Never>] = []
  }

  private let fault: Fault
  private let state: Mutex<State>

  init(_ fault: Fault, atCall number: Int) {
    self.fault = fault
    state = Mutex(State(callsLeft: number - 1))
  }

  /// The number of calls.
  var count: Int { state.withLock { $0.count } }

  /// Whether a call has met the fault.
  var wasMet: Bool { state.withLock { $0.callsLeft < 0 } }

  /// Whether calls currently fail or hang.
  var isActive: Bool { state.withLock { $0.callsLeft < 0 && !$0.isMended } }

  func call() async throws {
    let (isMet, isMended) = state.withLock { state in
      state.count += 1
      state.callsLeft -= 1
      return (state.callsLeft < 0, state.isMended)
    }
    guard isMet, !isMended else { return }
    if fault != .fails {
      await withCheckedContinuation { continuation in
        let isMended = state.withLock { state in
          if !state.isMended { state.hanging.append(continuation) }
          return state.isMended
        }
        if isMended { continuation.resume() }
      }
    }
    if fault != .hangs { throw Refusal("the disk is on fire") }
  }

  func mend() {
    let hanging = state.withLock { state in
      state.isMended = true
      defer { state.hanging = [] }
      return state.hanging
    }
    for continuation in hanging { continuation.resume() }
  }
}
