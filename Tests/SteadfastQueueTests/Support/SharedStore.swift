import Foundation
import Synchronization

@testable import SteadfastQueue

/// A store with leases that several queues use at the same time, as a database would be.
final class SharedStore: Sendable {
  struct State {
    var table = TaskTable()
    var leaseEnds: [Lease: Date] = [:]
    var isDestroyed = false
    var listeners: [AsyncStream<Void>.Continuation] = []
  }

  private let state = Mutex(State())
  let sharing: StoreSharing
  /// Whether it tells all processes of each batch.
  private let givesHints: Bool

  init(_ sharing: StoreSharing = StoreSharing(), givesHints: Bool = false) {
    self.sharing = sharing
    self.givesHints = givesHints
  }

  var isDestroyed: Bool { state.withLock { $0.isDestroyed } }

  /// The store as one process sees it.
  func process() -> Process { Process(self) }

  /// A process that may die: then none of its calls returns any more.
  final class Process: Persistence {
    private let store: SharedStore
    private let isDead = Mutex(false)
    private let isClosed = Mutex(false)
    private let waiting = Waiters<Void>()

    init(_ store: SharedStore) { self.store = store }

    var sharing: StoreSharing? { store.sharing }

    var hints: AsyncStream<Void>? {
      guard store.givesHints else { return nil }
      return AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
        store.state.withLock { $0.listeners.append(continuation) }
      }
    }

    func die() { isDead.withLock { $0 = true } }

    /// A process that is suspended and goes on later; its calls go on with it.
    func revive() {
      isDead.withLock { $0 = false }
      waiting.resumeAll(with: .success(()))
    }

    private func live() async throws {
      try await waiting.wait { isDead.withLock { $0 } ? nil : .success(()) }
      if isClosed.withLock({ $0 }) || store.isDestroyed { throw Refusal("it was closed") }
    }

    func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
      try await live()
      for change in batch { try change.checkForm() }
      return store.apply(batch)
    }

    func claim(_ request: ClaimRequest) async throws -> Claim {
      try await live()
      return store.claim(request)
    }

    func tasks(
      matching filter: TaskFilter,
      after id: TaskID?,
      limit: Int
    ) async throws -> [TaskRecord] {
      try await live()
      return store.state.withLock { $0.table.tasks(matching: filter, after: id, limit: limit) }
    }

    func count(matching filter: TaskFilter) async throws -> Int {
      try await live()
      return store.state.withLock { $0.table.count(matching: filter) }
    }

    func value(named name: String) async throws -> [UInt8]? {
      try await live()
      return store.state.withLock { $0.table.values[name] }
    }

    func memory(of id: TaskID) async throws -> TaskMemory {
      try await live()
      return store.state.withLock { $0.table.memory(of: id) }
    }

    func close() async throws { isClosed.withLock { $0 = true } }
    func destroy() async throws { store.state.withLock { $0 = State(isDestroyed: true) } }
  }

  private func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    state.withLock { state in
      defer { for listener in state.listeners { listener.yield() } }
      let outcomes = state.table.apply(batch)
      for case (.extend(let lease, let end), .done) in zip(batch, outcomes) {
        state.leaseEnds[lease] = end
      }
      let table = state.table
      state.leaseEnds = state.leaseEnds.filter { table.isHeld($0.key) }
      return outcomes
    }
  }

  /// Releases the tasks whose leases have run out, and then claims.
  private func claim(_ request: ClaimRequest) -> Claim {
    state.withLock { state in
      for (lease, end) in state.leaseEnds where end <= request.now {
        state.table.interrupt(lease)
        state.leaseEnds[lease] = nil
      }
      var claim = state.table.claim(request)
      for task in claim.tasks { state.leaseEnds[task.lease] = request.leaseEnd }
      if let end = state.leaseEnds.values.min() { claim.nextDate = min(claim.nextDate ?? end, end) }
      return claim
    }
  }
}

extension TaskTable {
  fileprivate func isHeld(_ lease: Lease) -> Bool {
    slot(of: lease.id).map { entries[$0].place == .leased(token: lease.token) } ?? false
  }

  /// The lease has run out: the task is available again, with one more interruption.
  fileprivate mutating func interrupt(_ lease: Lease) {
    guard isHeld(lease), let slot = slot(of: lease.id) else { return }
    entries[slot].record.interruptionCount += 1
    setState(.waiting, of: slot)
    lineUp(slot)
  }
}
