import SteadfastRetry

/// The store of a queue, and the wrapper that retries its calls.
final class QueueStore: Sendable {
  /// The store that the queue calls: ``retryingStore``, or the application's store if there is no
  /// wrapper.
  let front: any Persistence
  /// The application's store, if the queue belongs to a group.
  let group: GroupStore?
  /// The wrapper that retries calls; `nil` if the store's errors are never transient.
  let retryingStore: RetryingStore?
  /// The error if the queue's name, its configuration or the store's ``StoreSharing`` is invalid.
  private let validity: Result<Void, TaskQueueError>

  init(
    _ persistence: some Persistence,
    ofQueue name: String,
    _ configuration: TaskQueueConfiguration,
    retryPolicy: @autoclosure () -> StoreRetryPolicy
  ) {
    validity = Result { () throws(TaskQueueError) in
      try TaskQueueError.check(nameOfQueue: name)
      try configuration.validate()
      try persistence.sharing?.validate()
    }
    group = persistence as? GroupStore
    let store: any Persistence = group ?? NamedStore.of(queue: name, in: persistence)
    retryingStore = store.mayFailTransiently ? RetryingStore(store, retryPolicy()) : nil
    front = retryingStore ?? store
  }

  /// Makes calls in progress no longer wait for a server that does not respond, or wait again.
  func setWaiting(_ waits: Bool) { (front as? any UnsharedStore)?.setWaiting(waits) }

  /// Throws if the queue's name, its configuration or the store's ``StoreSharing`` is invalid.
  func checkCanOpen() throws(TaskQueueError) { try validity.get() }
}

/// Applying changes.
extension QueueStore {
  /// The maximum number of times that a change is sent again after the store has refused it.
  ///
  /// A store may refuse a change while another caller changes the same task, key or value. If it
  /// refuses the change more often, the store is considered faulty.
  static let maxConflictRetries = 1_000

  /// Applies changes in the store, and checks that the store returns an outcome for each of them.
  func persist(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    try MismatchedOutcomes.check(
      try await front.apply(changes, durability: durability),
      forChanges: changes.count
    )
  }

  /// Applies changes as ``persist(_:_:)`` does, but throws transient errors instead of retrying.
  func persistOnce(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    let store = retryingStore?.base ?? front
    return try MismatchedOutcomes.check(
      try await store.apply(changes, durability: durability),
      forChanges: changes.count
    )
  }

  /// Applies the changes that a handler makes during its attempt.
  ///
  /// Unlike ``persist(_:_:)``, this waits for an unavailable store even if the attempt is
  /// cancelled. Otherwise, the next attempt would have to repeat work that is already done. This
  /// does not wait if the run is cancelled or its attempts are cut short.
  func persistInAttempt(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    do {
      return try await persist(changes, durability)
    } catch {
      guard error.isTransientFailure, Task.isCancelled, let store = retryingStore else {
        throw error
      }
      let sending = Task(executorPreference: RealWork.taskExecutor) {
        try await store.applyInAttempt(changes, durability)
      }
      return try MismatchedOutcomes.check(try await sending.value, forChanges: changes.count)
    }
  }

  /// Waits before the caller retries an operation that failed with a transient error.
  ///
  /// - Throws: The error, if it is not transient, or the run or the caller is about to end.
  func waitToRetry(
    after error: any Error,
    _ retries: inout StoreRetryPolicy.Retries
  ) async throws {
    guard let retryPolicy = retryingStore?.retryPolicy else { throw error }
    // The next try may fail for another reason: another process may have locked a task.
    defer { retryPolicy.giveUp(&retries) }
    guard await retryPolicy.waitToRetry(after: error, &retries, .other) else { throw error }
  }

  /// Performs the body, whose calls of the store are not retried once the run is about to end.
  func bestEffort<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    guard retryingStore != nil else { return try await body() }
    return try await StoreRetryPolicy.$isBestEffort.withValue(true) { try await body() }
  }
}

extension QueueStore {
  func applicationValue(named name: String) async throws -> [UInt8]? {
    try Self.checkIsNotReserved(name)
    return try await front.value(named: name)
  }

  func setApplicationValue(
    _ value: [UInt8]?,
    named name: String,
    _ durability: Durability
  ) async throws {
    try Self.checkIsNotReserved(name)
    try await setValue(named: name, durability) { _ in value }
  }

  /// Sets a value of the application if its current bytes are the expected ones, and returns
  /// whether it was set.
  func replaceApplicationValue(
    named name: String,
    _ expected: [UInt8]?,
    by value: [UInt8]?,
    _ durability: Durability
  ) async throws -> Bool {
    try Self.checkIsNotReserved(name)
    return try await replaceValue(named: name, expected, by: value, durability)
  }

  private static func checkIsNotReserved(_ name: String) throws(TaskQueueError) {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the value's name '\(name)' starts with 'steadfast.', which is reserved for the package; use "
        + "another name"
    )
  }

  /// Replaces the bytes under a name with the result of calling `next` with the current bytes.
  ///
  /// If another caller changes the bytes in between, this calls `next` again with the new bytes.
  func setValue(
    named name: String,
    _ durability: Durability,
    _ next: ([UInt8]?) throws -> [UInt8]?
  ) async throws {
    for _ in 0..<Self.maxConflictRetries {
      let old = try await front.value(named: name)
      let new = try next(old)
      if try await replaceValue(named: name, old, by: new, durability) { return }
    }
    throw TaskQueueError.endlessConflictError(in: front, over: "the value '\(name)'")
  }

  /// Sets a value if its current bytes are the expected ones, and returns whether it was set.
  private func replaceValue(
    named name: String,
    _ expected: [UInt8]?,
    by value: [UInt8]?,
    _ durability: Durability
  ) async throws -> Bool {
    let change = TaskChange.setValue(named: name, from: expected, to: value)
    let results = try await persist([change], durability)
    switch results[0] {
    case .done: return true
    case .valueDiffers: return false
    case .doneWithConsequences, .replaced, .superseded, .unmetDependency, .duplicate,
      .identityTaken, .stale, .commanded, .batchRefused:
      throw MismatchedOutcomes(outcomes: results, changeCount: 1)
    }
  }

  func record(of id: TaskID) async throws -> TaskRecord? {
    try await front.tasks(matching: TaskFilter(ids: [id]), after: nil, limit: 1).first
  }
}

/// The error for a store that returns outcomes that can't belong to the changes that it was given.
struct MismatchedOutcomes: Error, CustomStringConvertible {
  let outcomes: [ChangeOutcome]
  let changeCount: Int

  /// Returns the outcomes, or throws if their number is not that of the changes.
  static func check(
    _ outcomes: [ChangeOutcome],
    forChanges count: Int
  ) throws -> [ChangeOutcome] {
    guard outcomes.count == count else {
      throw MismatchedOutcomes(outcomes: outcomes, changeCount: count)
    }
    return outcomes
  }

  var description: String {
    "the store's apply(_:durability:) returned the outcomes \(outcomes), which don't match the given "
      + "changes (number: \(changeCount)); the changes may or may not be stored, so fix the store"
  }
}
