import SteadfastRetry

/// The store of a queue, and the layers that the queue may have put in front of it.
final class QueueStore: Sendable {
  /// The outermost layer, which the queue calls.
  let front: any Persistence
  /// The queue's part of the store, if the queue belongs to a group.
  let group: GroupStore?
  /// The layer that retries calls; `nil` if the store's errors are never transient.
  let retryingStore: RetryingStore?
  /// The error if the queue's name, its configuration or the store's sharing is invalid.
  private let validity: Result<Void, TaskQueueError>

  /// Wraps the application's store.
  init(
    _ persistence: some Persistence,
    ofQueue name: String,
    _ configuration: TaskQueueConfiguration,
    retryPolicy: @autoclosure () -> StoreRetryPolicy
  ) {
    validity = Result { () throws(TaskQueueError) in
      if name.isEmpty {
        throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
      }
      try configuration.validate()
      try persistence.sharing?.validate()
    }
    group = persistence as? GroupStore
    retryingStore =
      persistence.mayFailTransiently ? RetryingStore(persistence, retryPolicy()) : nil
    front = retryingStore ?? persistence
  }

  /// Throws if an invalid argument prevents the queue from opening its store.
  func checkCanOpen() throws(TaskQueueError) { try validity.get() }
}

/// Applying changes.
extension QueueStore {
  /// The maximum number of refusals of the same request before the store counts as faulty.
  ///
  /// A store may refuse a request while another caller changes the same task, key or value.
  static let maxConflictRetries = 1_000

  /// Has the store apply changes, and checks that there is a result for each of them.
  func persist(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    try UnusableAnswer.check(
      try await front.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Applies changes as ``persist(_:_:)`` does, but does not retry after a transient error.
  func persistOnce(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    let store = retryingStore?.base ?? front
    return try UnusableAnswer.check(
      try await store.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Applies the changes of an attempt as ``persist(_:_:)`` does, and waits for an unavailable
  /// store even if the attempt is cancelled.
  ///
  /// The attempt's work must not be repeated. The call does not wait if the run is cancelled or cut
  /// short.
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
        try await store.send(changes, durability, .attempt).outcomes
      }
      return try UnusableAnswer.check(try await sending.value, to: changes.count)
    }
  }

  /// Applies changes as ``persist(_:_:)`` does, and returns whether they were sent to the store
  /// more than once.
  func send(
    _ changes: [TaskChange]
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    guard let retryingStore else {
      return (try await persist(changes), false)
    }
    let (outcomes, wasResent) = try await retryingStore.send(changes, .durable)
    return (try UnusableAnswer.check(outcomes, to: changes.count), wasResent)
  }

  /// Waits before retrying an operation that failed with a transient error.
  ///
  /// - Throws: The error, if it is not transient, or there is no time to wait.
  func waitToRepeat(after error: any Error, _ retries: inout Int) async throws {
    guard let retryPolicy = retryingStore?.retryPolicy,
      await retryPolicy.waitToRetry(after: error, retries: retries, .other)
    else { throw error }
    retries += 1
  }

  /// Performs the body, and marks the body's calls of the store as optional: a run that is about to
  /// end does not retry them.
  func bestEffort<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    guard retryingStore != nil else { return try await body() }
    return try await StoreRetryPolicy.$isBestEffort.withValue(true) { try await body() }
  }
}

/// Values, and single tasks.
extension QueueStore {
  /// Returns a value of the application.
  func usersValue(named name: String) async throws -> [UInt8]? {
    try Self.checkIsUsers(name)
    return try await front.value(named: name)
  }

  /// Sets a value of the application.
  func setUsersValue(
    _ value: [UInt8]?,
    named name: String,
    _ durability: Durability
  ) async throws {
    try Self.checkIsUsers(name)
    try await setValue(named: name, durability) { _ in value }
  }

  /// Sets a value of the application if it is the expected one.
  func replaceUsersValue(
    named name: String,
    _ expected: [UInt8]?,
    by value: [UInt8]?,
    _ durability: Durability
  ) async throws -> Bool {
    try Self.checkIsUsers(name)
    return try await replaceValue(named: name, expected, by: value, durability)
  }

  /// Throws if the package reserves the name.
  private static func checkIsUsers(_ name: String) throws(TaskQueueError) {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the value's name '\(name)' starts with 'steadfast.', which is reserved for the package; use "
        + "another name"
    )
  }

  /// Replaces a value by the function's result for the current value; retries if another caller
  /// changed it.
  func setValue(
    named name: String,
    _ durability: Durability,
    _ next: ([UInt8]?) throws -> [UInt8]?
  ) async throws {
    var retries = 0
    for _ in 0..<Self.maxConflictRetries {
      let old = try await front.value(named: name)
      let new = try next(old)
      do {
        if try await replaceValue(named: name, old, by: new, durability) { return }
      } catch {
        // The store may have stored the value. The next read returns the current value in any case.
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.endlessConflictError(in: front, over: "the value '\(name)'")
  }

  /// Sets a value if it is the expected one.
  ///
  /// The change is a batch of its own, because the store discards the whole batch if the value is
  /// not the expected one.
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
      .identityTaken, .stale, .batchRefused:
      throw UnusableAnswer(results: results, to: 1)
    }
  }

  func record(of id: TaskID) async throws -> TaskRecord? {
    try await front.tasks(matching: TaskFilter(ids: [id]), after: nil, limit: 1).first
  }
}

/// The error for a store whose results don't match the changes that it was given.
struct UnusableAnswer: Error, CustomStringConvertible {
  let results: [ChangeOutcome]
  let to: Int

  /// Returns the results if there is one for each change.
  static func check(_ results: [ChangeOutcome], to count: Int) throws -> [ChangeOutcome] {
    guard results.count == count else { throw UnusableAnswer(results: results, to: count) }
    return results
  }

  var description: String {
    "the store answered \(to) changes with \(results), which doesn't match them; "
      + "whether the changes were stored is unknown"
  }
}
