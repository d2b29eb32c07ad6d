public import SteadfastQueue
import SteadfastRetry
import Synchronization

/// A store that fails, hangs or is slow when a test says so, in front of another store.
///
/// Without a fault, it does what the underlying store does.
///
/// ```swift
/// let store = FaultInjectingStore()
/// let queue = TaskQueue(persistence: store, clock: clock)
/// store.inject(.error(DiskFull())) { $0.kind == .apply }
/// ```
/// Only the order of the calls decides which call meets a fault. In virtual time, a test therefore
/// runs the same way each time. The underlying store can be any store, including one in a file. A
/// test that holds it in a variable can use it directly, without faults.
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
    /// How often ``restore()`` was called; it ends the faults of all calls that began before.
    var restoreCount = 0
  }

  /// The faults that a call meets.
  private struct Encounter {
    let rules: [Rule]
    let restoreCount: Int
  }

  private let base: any Persistence
  private let state = Mutex(State())
  private let held = HeldCalls()

  /// Whether the store tells the queue that its ``apply(_:durability:)`` waits for nothing.
  public let appliesAtOnce: Bool
  /// How several queues share the underlying store.
  public let sharing: StoreSharing?
  /// That of the store.
  public let hasOneClock: Bool
  /// How many tasks the store lets a queue claim ahead of its workers: as many as the underlying
  /// store does.
  public var claimBatch: Int { base.claimBatch }
  /// Those of the underlying store.
  public var hints: AsyncStream<Void>? { base.hints }

  /// Makes a store that does what the underlying store does, until a fault is injected.
  ///
  /// - Parameters:
  ///   - base: the underlying store; by default one in memory.
  ///   - appliesAtOnce: the value of ``appliesAtOnce``; by default `false`, because a store that
  ///     can hang waits.
  public init(_ base: any Persistence = InMemoryStore(), appliesAtOnce: Bool = false) {
    self.base = base
    self.appliesAtOnce = appliesAtOnce
    sharing = base.sharing
    hasOneClock = base.hasOneClock
  }
}

// MARK: - Faults

extension FaultInjectingStore {
  /// Injects a fault, which the next calls that satisfy the predicate meet.
  ///
  /// A call that satisfies several predicates meets all of their faults, in the order in which they
  /// were injected: a call that hangs may fail when it is let go. The predicate is called once for
  /// each call, until `times` calls have met the fault. It can use the call's number. It must not
  /// use the store.
  ///
  /// - Parameters:
  ///   - fault: what happens.
  ///   - moment: whether the fault happens before or after the underlying store is called.
  ///   - times: how many calls meet the fault, none if it is not positive; `nil` for all calls
  ///     until ``restore()``.
  ///   - isMet: returns whether a call meets the fault.
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

  /// Makes every call throw this error and have no effect, from now on until ``restore()``.
  ///
  /// Calls that are under way go on.
  public func cutOff(throwing error: any Error) {
    state.withLock { $0.cutOffError = error }
  }

  /// Removes all faults, and lets the calls go on that hang.
  ///
  /// A call that is under way meets no more faults, either; but a delay that has begun runs to its
  /// end.
  public func restore() {
    state.withLock { state in
      state.rules = []
      state.cutOffError = nil
      state.restoreCount += 1
    }
    letGo()
  }

  /// Lets the calls go on that hang now, and returns their number.
  @discardableResult
  public func letGo() -> Int { held.letGo() }

  /// Waits until at least this many calls hang.
  ///
  /// - Throws: `CancellationError` when the task is cancelled.
  public func waitForHeldCalls(count: Int = 1) async throws { try await held.wait(for: count) }

  /// The calls that were made so far, in order, including those that failed.
  public var calls: [Call] { state.withLock { $0.calls } }

  /// Records a call, and returns the faults that it meets.
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
      // A cancelled caller waits no longer, but the call still runs to its end.
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
  /// Opens the underlying store.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func open() async throws { try await perform(.open) { try await base.open() } }

  /// Applies a batch of changes to the underlying store.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await perform(.apply, batch) { try await base.apply(batch, durability: durability) }
  }

  /// Claims the first available tasks of the underlying store.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await perform(.claim) { try await base.claim(request) }
  }

  /// Returns the tasks of the underlying store that match a filter.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await perform(.tasks) { try await base.tasks(matching: filter, after: id, limit: limit) }
  }

  /// Returns the number of tasks of the underlying store that match a filter.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await perform(.count) { try await base.count(matching: filter) }
  }

  /// Returns whether any task of the underlying store matches a filter.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await perform(.contains) { try await base.contains(filter) }
  }

  /// Returns the bytes that the underlying store holds under a name.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func value(named name: String) async throws -> [UInt8]? {
    try await perform(.value) { try await base.value(named: name) }
  }

  /// Returns what a task of the underlying store remembers.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await perform(.memory) { try await base.memory(of: id) }
  }

  /// Returns the statement of the underlying store; no fault concerns it.
  ///
  /// - Throws: what the underlying store throws.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: record, onDuplicate: policy)
  }

  /// Closes the underlying store.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func close() async throws { try await perform(.close) { try await base.close() } }

  /// Destroys the underlying store.
  ///
  /// - Throws: an injected error; what the underlying store throws.
  public func destroy() async throws { try await perform(.destroy) { try await base.destroy() } }
}

extension FaultInjectingStore {
  /// What goes wrong in a call.
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

  /// When in a call a fault happens.
  @nonexhaustive
  public enum Moment: Sendable, Hashable {
    /// Before the underlying store is called.
    ///
    /// A call that throws has changed nothing, as when the disk is full.
    case beforeEffect
    /// After the underlying store has returned, so that only the answer is affected.
    ///
    /// A call that throws has made its changes, but the caller can't know, as when a connection
    /// breaks.
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
      /// `tasks(matching:after:limit:)`.
      case tasks
      /// `count(matching:)`.
      case count
      /// `contains(_:)`.
      case contains
      /// `value(named:)`.
      case value
      /// `memory(of:)`.
      case memory
      /// `close()`.
      case close
      /// `destroy()`.
      case destroy
    }

    /// The call's place among the calls to the store; the first call is 1.
    public let number: Int
    /// The requirement that was called.
    public let kind: Kind
    /// The changes that `apply` was called with; empty for all other calls.
    public let changes: [TaskChange]

    /// The call's number and the requirement that was called.
    public var description: String { "\(number). \(kind)" }
  }
}

/// The calls that hang until they are let go, and the watchers that wait for such calls.
final class HeldCalls: Sendable {
  private struct State {
    var held: [CheckedContinuation<Void, Never>] = []
    var watchers: [Int: (count: Int, continuation: CancellableSuspension<Int>.Continuation)] = [:]
    var lastTicket = 0

    /// Removes and returns the watchers for which enough calls are held.
    mutating func takeSatisfied() -> [CancellableSuspension<Int>.Continuation] {
      let satisfied = watchers.filter { $0.value.count <= held.count }.keys.sorted()
      return satisfied.compactMap { watchers.removeValue(forKey: $0)?.continuation }
    }
  }

  private let state = Mutex(State())

  /// Holds a call until it is let go, unless `check`, called under the lock, returns true.
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

  /// Waits until at least `count` calls are held.
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

/// The error of a store that is unavailable for a while, as when a database fails over.
public struct TransientFault: PersistenceError, CustomStringConvertible {
  /// Makes an error.
  public init() {}

  /// `true`.
  public var isTransient: Bool { true }

  /// What happened.
  public var description: String { "the store is unavailable for a while" }
}
