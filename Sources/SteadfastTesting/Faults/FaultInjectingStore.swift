public import SteadfastQueue
import SteadfastRetry
import Synchronization

/// A store that fails, hangs or is slow when a test says so, and else does what the store behind it
/// does.
///
/// ```swift
/// let store = FaultInjectingStore()
/// let queue = TaskQueue(persistence: store, clock: clock)
/// store.inject(.error(DiskFull())) { $0.kind == .apply }
/// ```
/// Faults are met in the order in which calls are made, and nothing else decides about them: in
/// virtual time a test goes the same way each time. The store behind it may be any, one in a file too,
/// and is reached by its own variable as if nothing were wrong.
public final class FaultInjectingStore: Persistence {
  private struct Rule: Sendable {
    let fault: Fault
    let moment: Moment
    var callsLeft: Int
    let isMet: @Sendable (Call) -> Bool
  }

  private struct State {
    var calls: [Call] = []
    var rules: [Rule] = []
    var cutOffError: (any Error)?
    /// How often it was made sound: what a call has met before counts no more.
    var restoreCount = 0
  }

  /// What a call meets.
  private struct Encounter {
    let rules: [Rule]
    let restoreCount: Int
  }

  private let base: any Persistence
  private let state = Mutex(State())
  private let held = HeldCalls()

  /// Whether the queue is to take the store for one whose ``apply(_:durability:)`` waits for nothing.
  public let appliesAtOnce: Bool
  /// How several queues share the store behind.
  public let sharing: StoreSharing?

  /// Makes a store that does what the one behind it does, until a fault is injected.
  ///
  /// - Parameters:
  ///   - base: the store behind it; left out, one in memory.
  ///   - appliesAtOnce: what the store says of itself; left out, that it waits, as one that can hang
  ///     does.
  public init(_ base: any Persistence = InMemoryStore(), appliesAtOnce: Bool = false) {
    self.base = base
    self.appliesAtOnce = appliesAtOnce
    sharing = base.sharing
  }
}

// MARK: - Faults

extension FaultInjectingStore {
  /// The next calls that satisfy the predicate meet a fault.
  ///
  /// A call that satisfies several meets them all, in the order in which they were injected: one
  /// that hangs may fail when it is let go. The predicate is asked once for each call until all of its
  /// calls were met, with the call's number among others; it must not use the store.
  ///
  /// - Parameters:
  ///   - fault: what happens.
  ///   - moment: whether the store behind is asked before that or after it.
  ///   - times: how many calls meet it, none if it is not positive; `nil` for all until ``restore()``.
  ///   - isMet: which calls.
  public func inject(
    _ fault: Fault,
    _ moment: Moment = .beforeEffect,
    times: Int? = 1,
    where isMet: @escaping @Sendable (Call) -> Bool
  ) {
    guard times ?? 1 > 0 else { return }
    let rule = Rule(fault: fault, moment: moment, callsLeft: times ?? .max, isMet: isMet)
    state.withLock { $0.rules.append(rule) }
  }

  /// Every call throws this error from now on and has no effect, until ``restore()``.
  ///
  /// Calls that are under way go on.
  public func cutOff(throwing error: any Error) {
    state.withLock { $0.cutOffError = error }
  }

  /// Makes the store sound: nothing that was injected is met any more, and calls that hang go on.
  ///
  /// A call that is under way meets nothing more either; a delay that has begun passes.
  public func restore() {
    state.withLock { state in
      state.rules = []
      state.cutOffError = nil
      state.restoreCount += 1
    }
    letGo()
  }

  /// Lets the calls go on that hang now, and returns how many they are.
  @discardableResult
  public func letGo() -> Int { held.letGo() }

  /// Waits until at least this many calls hang.
  ///
  /// - Throws: `CancellationError` when the task is cancelled.
  public func waitForHeldCalls(count: Int = 1) async throws { try await held.wait(for: count) }

  /// The calls that were made so far, in order, those that failed too.
  public var calls: [Call] { state.withLock { $0.calls } }

  /// Notes a call, and returns what it meets.
  private func meet(_ kind: Call.Kind, _ changes: [TaskChange]) throws -> Encounter {
    try state.withLock { state in
      let call = Call(number: state.calls.count + 1, kind: kind, changes: changes)
      state.calls.append(call)
      if let error = state.cutOffError { throw error }
      var met: [Rule] = []
      for index in state.rules.indices where state.rules[index].isMet(call) {
        met.append(state.rules[index])
        state.rules[index].callsLeft -= 1
      }
      state.rules.removeAll { $0.callsLeft <= 0 }
      return Encounter(rules: met, restoreCount: state.restoreCount)
    }
  }

  private func suffer(_ encounter: Encounter, _ moment: Moment) async throws {
    func isOver() -> Bool { state.withLock { $0.restoreCount } != encounter.restoreCount }
    for rule in encounter.rules where rule.moment == moment {
      if isOver() { return }
      switch rule.fault {
      case .error(let error): throw error
      case .hang: await held.hold(unless: isOver)
      // Whoever is cancelled waits no longer; the call runs to its end all the same.
      case .delay(let duration, let clock): try? await clock.wait(for: duration)
      }
    }
  }

  private func perform<Result: Sendable>(
    _ kind: Call.Kind,
    _ changes: [TaskChange] = [],
    _ body: () async throws -> Result
  ) async throws -> Result {
    let encounter = try meet(kind, changes)
    try await suffer(encounter, .beforeEffect)
    let result = try await body()
    try await suffer(encounter, .afterEffect)
    return result
  }
}

// MARK: - The store

extension FaultInjectingStore {
  /// Opens the store behind.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func open() async throws { try await perform(.open) { try await base.open() } }

  /// Has a batch of changes kept by the store behind.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await perform(.apply, batch) { try await base.apply(batch, durability: durability) }
  }

  /// Leases the first available tasks of the store behind.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await perform(.claim) { try await base.claim(request) }
  }

  /// The tasks of the store behind that a filter lets through.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await perform(.tasks) { try await base.tasks(matching: filter, after: id, limit: limit) }
  }

  /// How many tasks of the store behind a filter lets through.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await perform(.count) { try await base.count(matching: filter) }
  }

  /// Closes the store behind.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func close() async throws { try await perform(.close) { try await base.close() } }

  /// Destroys the store behind.
  ///
  /// - Throws: what was injected; what the store behind throws.
  public func destroy() async throws { try await perform(.destroy) { try await base.destroy() } }
}
