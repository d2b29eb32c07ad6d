import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// A store with leases that several queues can share, like a database.
final class SharedStore: Sendable {
  struct State {
    var table = TaskTable()
    /// The date at which each lease expires, by the store's clock.
    var leaseEnds: [Lease: Date] = [:]
    /// The date at which expired leases were last ended.
    var lastEnding = Date.distantPast
    /// The seconds by which the clock was moved forward.
    var clockOffset = 0.0
    var isDestroyed = false
    var listeners: [AsyncStream<Void>.Continuation] = []
  }

  private let state = Mutex(State())
  let sharing: StoreSharing
  /// Whether the store notifies all processes of each batch.
  private let givesHints: Bool
  /// Whether the store looks for expired leases only three times per lease duration.
  ///
  /// If so, each claim that found tasks also requests another claim.
  private let looksSeldom: Bool
  /// The store's own clock, which stands still in a test without virtual time.
  private let clock: VirtualClock

  init(
    _ sharing: StoreSharing = StoreSharing(),
    givesHints: Bool = false,
    looksSeldom: Bool = false
  ) {
    self.sharing = sharing
    self.givesHints = givesHints
    self.looksSeldom = looksSeldom
    clock = VirtualTime.current?.clock ?? VirtualClock()
  }

  /// Moves the store's clock forward.
  func advanceClock(by duration: Duration) {
    state.withLock { $0.clockOffset += duration / .seconds(1) }
  }

  var isDestroyed: Bool { state.withLock { $0.isDestroyed } }

  /// Connects another process to the store.
  func process() -> Process { Process(self) }

  /// A process that may die.
  ///
  /// From then on, none of its calls returns.
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

    /// Resumes the process and its calls, as if it had only been suspended.
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
      limit: Int,
      newestFirst: Bool
    ) async throws -> [TaskRecord] {
      try await live()
      return store.state.withLock {
        $0.table.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
      }
    }

    func count(matching filter: TaskFilter) async throws -> Int {
      try await live()
      return store.state.withLock { $0.table.count(matching: filter) }
    }

    func census(at now: Date) async throws -> TaskCensus {
      try await live()
      return store.state.withLock { $0.table.census(at: now) }
    }

    func value(named name: String) async throws -> [UInt8]? {
      try await live()
      return store.state.withLock { $0.table.values[name] }
    }

    func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
      try await live()
      return store.state.withLock { $0.table.values.all(prefix: prefix) }
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
      let outcomes = state.table.applyWithCommands(batch)
      for case (.extend(let lease, let duration), .done) in zip(batch, outcomes) {
        let end = state.now(clock) + duration / .seconds(1)
        state.leaseEnds[lease] = end
        state.table.changeClaim(of: lease.id) { $0?.endDate = end }
      }
      let table = state.table
      state.leaseEnds = state.leaseEnds.filter { table.isHeld($0.key) }
      return outcomes
    }
  }

  /// Releases the tasks whose leases have expired, and then claims tasks.
  private func claim(_ request: ClaimRequest) -> Claim {
    state.withLock { state in
      let now = state.now(clock)
      if !looksSeldom || now >= state.lastEnding + sharing.leaseDuration / .seconds(3) {
        state.endClaims(until: now)
      }
      var claim = state.table.claim(request)
      for task in claim.tasks {
        let end = request.leaseDuration.map { now + $0 / .seconds(1) }
        state.leaseEnds[task.lease] = end
        state.table.changeClaim(of: task.lease.id) {
          $0 = TaskClaim(holder: request.holder, date: now, endDate: end)
        }
      }
      if let end = state.leaseEnds.values.min() {
        // Only the next claim ends a lease that has already expired, so it must come later.
        let date = request.now + max(1, end.timeIntervalSince(now))
        claim.nextDate = min(claim.nextDate ?? date, date)
      }
      if looksSeldom, !claim.tasks.isEmpty { claim.nextDate = request.now }
      return claim
    }
  }
}

extension SharedStore.State {
  fileprivate func now(_ clock: VirtualClock) -> Date { clock.date + clockOffset }

  fileprivate mutating func endClaims(until now: Date) {
    lastEnding = now
    for (lease, end) in leaseEnds where end <= now {
      table.interrupt(lease)
      leaseEnds[lease] = nil
    }
  }
}

extension TaskTable {
  fileprivate func isHeld(_ lease: Lease) -> Bool {
    slot(of: lease.id).map { entries[$0].place == .leased(token: lease.token) } ?? false
  }

  /// Applies a batch, of which no change depends on another change for the same task.
  fileprivate mutating func applyWithCommands(_ batch: [TaskChange]) -> [ChangeOutcome] {
    let answers = batch.map { answer(to: $0) }
    let rest = zip(batch, answers).filter { $1 == nil }.map(\.0)
    var outcomes = (rest.isEmpty ? [] : apply(rest)).makeIterator()
    return answers.compactMap { $0 ?? outcomes.next() }
  }

  /// Returns the outcome of a change that stores a command, or that a command refuses; otherwise
  /// `nil`.
  private mutating func answer(to change: TaskChange) -> ChangeOutcome? {
    if case .command(let id, let old, let new) = change {
      guard let slot = slot(of: id), entries[slot].record.state == .running,
        entries[slot].record.command == old
      else { return .stale }
      entries[slot].record.command = new
      return .done
    }
    guard let lease = change.leaseEndedWithoutSuccess, isHeld(lease),
      let command = record(of: lease.id)?.command, command != lease.command
    else { return nil }
    return .commanded(command)
  }

  fileprivate mutating func changeClaim(of id: TaskID, _ change: (inout TaskClaim?) -> Void) {
    if let slot = slot(of: id) { change(&entries[slot].record.claim) }
  }

  /// Ends an expired lease: the task is available again, with one more interruption.
  fileprivate mutating func interrupt(_ lease: Lease) {
    guard isHeld(lease), let slot = slot(of: lease.id) else { return }
    entries[slot].record.interruptionCount += 1
    setState(.waiting, of: slot)
    putInList(slot)
  }
}
