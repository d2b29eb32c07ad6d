public import SteadfastQueue
import SteadfastRetry
import Synchronization
public import SystemFoundation

/// A store that wraps another one, and fails, hangs or slows down when a test asks it to.
///
/// Without a fault, it behaves like the underlying store.
///
/// ```swift
/// let store = FaultInjectingStore()
/// let queue = TaskQueue(persistence: store, clock: clock)
/// store.inject(.error(DiskFull())) { $0.kind == .apply }
/// ```
/// Which calls a fault affects depends only on the calls and their order, so in virtual time a test
/// runs the same way each time. The underlying store can be any store, including one in a file. To
/// avoid the faults, a test can use the underlying store directly.
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
    /// The number of calls of ``restore()``; each ends the faults of the calls before it.
    var restoreCount = 0
  }

  /// The faults that affect a call.
  private struct Encounter {
    let rules: [Rule]
    let restoreCount: Int
  }

  private let base: any Persistence
  private let state = Mutex(State())
  private let held = HeldCalls()

  /// Whether the queue may assume that ``apply(_:durability:)`` never waits.
  public let appliesAtOnce: Bool
  /// How several queues share the underlying store.
  public let sharing: StoreSharing?
  /// Whether all queues on the underlying store have the same clock.
  public let hasOneClock: Bool
  /// The number of tasks that a queue may claim ahead of its workers, as in the underlying store.
  public var claimBatch: Int { base.claimBatch }
  /// The hints of the underlying store.
  public var hints: AsyncStream<Void>? { base.hints }

  /// Makes a store that behaves like the underlying store until a fault is injected.
  ///
  /// - Parameters:
  ///   - base: the underlying store; by default a store in memory.
  ///   - appliesAtOnce: the value of ``appliesAtOnce``; by default `false`, because a fault may
  ///     make ``apply(_:durability:)`` wait.
  public init(_ base: any Persistence = InMemoryStore(), appliesAtOnce: Bool = false) {
    self.base = base
    self.appliesAtOnce = appliesAtOnce
    sharing = base.sharing
    hasOneClock = base.hasOneClock
  }
}

// MARK: - Faults

extension FaultInjectingStore {
  /// Injects a fault into the next calls that satisfy the predicate.
  ///
  /// If a call satisfies the predicates of several faults, all of these faults affect it, in the
  /// order in which they were injected. For example, a call can hang, and then fail after
  /// ``letGo()``. The predicate is called once for each call, until the fault has affected `times`
  /// calls. The predicate can use the call's number, but must not use the store.
  ///
  /// - Parameters:
  ///   - fault: the fault.
  ///   - moment: whether the fault happens before or after the underlying store is called.
  ///   - times: the number of calls that the fault affects; `nil` for all calls until
  ///     ``restore()``. If it is zero or negative, the method does nothing.
  ///   - isMet: returns whether the fault affects a call.
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

  /// Makes every call throw this error without any effect, until ``restore()``.
  ///
  /// Calls that have already started continue.
  public func cutOff(throwing error: any Error) {
    state.withLock { $0.cutOffError = error }
  }

  /// Removes all faults, and lets the hanging calls continue.
  ///
  /// Calls that have already started meet no more faults, but a delay in progress continues to its
  /// end.
  public func restore() {
    state.withLock { state in
      state.rules = []
      state.cutOffError = nil
      state.restoreCount += 1
    }
    letGo()
  }

  /// Lets all hanging calls continue, and returns their number.
  @discardableResult
  public func letGo() -> Int { held.letGo() }

  /// Waits until at least this many calls hang.
  ///
  /// - Throws: `CancellationError` when the task is cancelled.
  public func waitForHeldCalls(count: Int = 1) async throws { try await held.wait(for: count) }

  /// The calls so far, in order, including those that failed.
  public var calls: [Call] { state.withLock { $0.calls } }

  /// Records a call, and returns the faults that affect it.
  private func recordCall(_ kind: Call.Kind, _ changes: [TaskChange]) throws -> Encounter {
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

  private func applyFaults(
    of encounter: Encounter,
    at moment: Moment,
    _ changes: [TaskChange]
  ) async throws {
    func isOver() -> Bool { state.withLock { $0.restoreCount } != encounter.restoreCount }
    for rule in encounter.rules where rule.moment == moment {
      if isOver() { return }
      switch rule.fault {
      case .error(let error):
        throw moment == .afterEffect ? finalError(error, after: changes) : error
      case .hang: await held.hold(unless: isOver)
      // If the caller is cancelled, the delay ends early, but the call still runs to its end.
      case .delay(let duration, let clock): try? await clock.wait(for: duration)
      }
    }
  }

  /// Returns the error to throw after changes were made: another one if the error is transient, but
  /// the changes do more than extend claims.
  private func finalError(_ error: any Error, after changes: [TaskChange]) -> any Error {
    guard let transient = error as? any PersistenceError, transient.isTransient,
      changes.contains(where: { if case .extend = $0 { false } else { true } })
    else { return error }
    return MisplacedFault(error: transient)
  }

  private func perform<Result: Sendable>(
    _ kind: Call.Kind,
    _ changes: [TaskChange] = [],
    _ body: () async throws -> Result
  ) async throws -> Result {
    let encounter = try recordCall(kind, changes)
    try await applyFaults(of: encounter, at: .beforeEffect, changes)
    let result = try await body()
    try await applyFaults(of: encounter, at: .afterEffect, changes)
    return result
  }
}

// MARK: - The store

extension FaultInjectingStore {
  /// Opens the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func open() async throws { try await perform(.open) { try await base.open() } }

  /// Applies a batch of changes to the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await perform(.apply, batch) { try await base.apply(batch, durability: durability) }
  }

  /// Claims the first available tasks of the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await perform(.claim) { try await base.claim(request) }
  }

  /// Returns the tasks of the underlying store that match a filter.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await perform(.tasks) {
      try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
    }
  }

  /// Returns the number of tasks of the underlying store that match a filter.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await perform(.count) { try await base.count(matching: filter) }
  }

  /// Returns whether any task of the underlying store matches a filter.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await perform(.contains) { try await base.contains(filter) }
  }

  /// Returns the census of the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func census(at now: Date) async throws -> TaskCensus {
    try await perform(.census) { try await base.census(at: now) }
  }

  /// Returns the bytes that the underlying store has under a name.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func value(named name: String) async throws -> [UInt8]? {
    try await perform(.value) { try await base.value(named: name) }
  }

  /// Returns the values of the underlying store whose names begin with a prefix.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await perform(.value) { try await base.values(prefix: prefix) }
  }

  /// Returns what a task of the underlying store remembers.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await perform(.memory) { try await base.memory(of: id) }
  }

  /// Returns the statement of the underlying store; faults don't affect it.
  ///
  /// - Throws: the underlying store's error.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: record, onDuplicate: policy)
  }

  /// Closes the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func close() async throws { try await perform(.close) { try await base.close() } }

  /// Destroys the underlying store.
  ///
  /// - Throws: an injected error; the underlying store's error.
  public func destroy() async throws { try await perform(.destroy) { try await base.destroy() } }
}

extension FaultInjectingStore {
  /// A fault of a call.
  @nonexhaustive
  public enum Fault: Sendable {
    /// The call throws this error.
    case error(any Error)
    /// The call waits until ``FaultInjectingStore/letGo()``, even if its caller is cancelled.
    case hang
    /// The call waits for this duration on a clock, or until its caller is cancelled.
    case delay(Duration, on: any Clock<Duration>)

    /// The call throws a ``TransientFault``, after which a queue makes it again.
    public static var transientError: Fault { .error(TransientFault()) }
  }

  /// The moment of a call at which a fault happens.
  @nonexhaustive
  public enum Moment: Sendable, Hashable {
    /// Before the underlying store is called.
    ///
    /// If the call throws, it has changed nothing, as when the disk is full.
    case beforeEffect
    /// After the underlying store has returned.
    ///
    /// If the call throws, it has made its changes, but the caller can't know that, as when a
    /// connection breaks. A store promises to have stored nothing if its error is transient
    /// (`PersistenceError`). So if a transient error is injected here, `apply` throws an error that
    /// says so instead.
    case afterEffect
  }

  /// A call that was made to the store.
  public struct Call: Sendable, CustomStringConvertible {
    /// A requirement of `Persistence`.
    @nonexhaustive
    public enum Kind: String, Sendable, Hashable, CaseIterable {
      /// `open()`.
      case open
      /// `apply(_:durability:)`.
      case apply
      /// `claim(_:)`.
      case claim
      /// `tasks(matching:after:limit:newestFirst:)`.
      case tasks
      /// `count(matching:)`.
      case count
      /// `contains(_:)`.
      case contains
      /// `census(at:)`.
      case census
      /// `value(named:)` or `values(prefix:)`.
      case value
      /// `memory(of:)`.
      case memory
      /// `close()`.
      case close
      /// `destroy()`.
      case destroy
    }

    /// The call's position among the calls to the store; the first call is 1.
    public let number: Int
    /// The requirement that was called.
    public let kind: Kind
    /// The changes that `apply` was called with; empty for all other calls.
    public let changes: [TaskChange]

    /// The call's number and the requirement that was called.
    public var description: String { "\(number). \(kind)" }
  }
}

/// The calls that hang, and the callers of ``wait(for:)``, the watchers.
final class HeldCalls: Sendable {
  private struct State {
    var held: [CheckedContinuation<Void, Never>] = []
    var watchers: [Int: (count: Int, continuation: CancellableSuspension<Int>.Continuation)] = [:]
    var lastTicket = 0

    /// Removes and returns the watchers that wait for no more calls than hang now.
    mutating func takeSatisfied() -> [CancellableSuspension<Int>.Continuation] {
      let satisfied = watchers.filter { $0.value.count <= held.count }.keys.sorted()
      return satisfied.compactMap { watchers.removeValue(forKey: $0)?.continuation }
    }
  }

  private let state = Mutex(State())

  /// Suspends a call until ``letGo()``, unless `check`, called under the lock, returns true.
  func hold(unless check: () -> Bool) async {
    await withCheckedContinuation { call in
      let satisfied: [CancellableSuspension<Int>.Continuation]? = state.withLock { state in
        if check() { return nil }
        state.held.append(call)
        return state.takeSatisfied()
      }
      guard let satisfied else { return call.resume() }
      for watcher in satisfied { watcher.resume() }
    }
  }

  func letGo() -> Int {
    let calls = state.withLock { state in
      defer { state.held = [] }
      return state.held
    }
    for call in calls { call.resume() }
    return calls.count
  }

  /// Waits until at least `count` calls hang.
  func wait(for count: Int) async throws {
    try await CancellableSuspension<Int>.suspend { continuation in
      state.withLock { state in
        guard state.held.count < count else { return (nil, [continuation]) }
        state.lastTicket += 1
        state.watchers[state.lastTicket] = (count, continuation)
        return (state.lastTicket, [])
      }
    } withdraw: { ticket in
      state.withLock { $0.watchers.removeValue(forKey: ticket)?.continuation }
    }
  }
}

/// The error for a transient error that was injected after the effect of a change.
private struct MisplacedFault: Error, CustomStringConvertible {
  let error: any PersistenceError

  var description: String {
    "the transient error '\(error)' was injected after the effect of a change, but a transient error "
      + "means that nothing was stored; inject it before the effect, or inject an error that is not "
      + "transient"
  }
}

/// The error of a store that is unavailable for a while, as when a database fails over.
public struct TransientFault: PersistenceError, CustomStringConvertible {
  /// Makes an error.
  public init() {}

  /// `true`.
  public var isTransient: Bool { true }

  /// What happened.
  public var description: String { "the store is unavailable for a while" }
}
