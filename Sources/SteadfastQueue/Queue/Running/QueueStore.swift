import SteadfastRetry
import Synchronization
import SystemFoundation

/// The store of a queue, and the layers that the queue may have put in front of it.
struct QueueStore: Sendable {
  /// What takes the queue's calls.
  let front: any Persistence
  /// The queue's part of the store, if the queue belongs to a group.
  let group: GroupStore?
  /// What makes calls again, if the store's errors may be transient.
  let patientStore: RetryingStore?
  /// The error if the queue's name, its configuration or the store's sharing is invalid.
  private let validity: Result<Void, TaskQueueError>

  /// Takes the store that the application has given.
  init(
    _ persistence: some Persistence,
    ofQueue name: String,
    _ configuration: TaskQueueConfiguration,
    patience: @autoclosure () -> StoreRetryPolicy
  ) {
    validity = Result { () throws(TaskQueueError) in
      if name.isEmpty {
        throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
      }
      try configuration.validate()
      try persistence.sharing?.validate()
    }
    group = persistence as? GroupStore
    patientStore =
      persistence.mayFailTransiently ? RetryingStore(persistence, patience()) : nil
    front = patientStore ?? persistence
  }

  /// Throws what keeps the queue from opening its store.
  func checkCanOpen() throws(TaskQueueError) { try validity.get() }
}

/// How a queue has its store apply changes.
extension QueueStore {
  /// How often a store may refuse what the queue asks again before that counts as a fault of the
  /// store.
  ///
  /// It may do so while another caller changes the same task, key or value.
  static let mostRefusals = 1_000

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

  /// Does what ``persist(_:_:)`` does, and makes no second call after a transient error.
  func persistOnce(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    let store = patientStore?.base ?? front
    return try UnusableAnswer.check(
      try await store.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Does what ``persist(_:_:)`` does for changes that an attempt makes, and waits for a store that
  /// is gone for a while even if the attempt is cancelled.
  ///
  /// What the attempt has done is not to be done again. It does not wait when the run is cancelled,
  /// or cut short.
  func persistInAttempt(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    do {
      return try await persist(changes, durability)
    } catch {
      guard error.isTransientFailure, Task.isCancelled, let store = patientStore else {
        throw error
      }
      let sending = Task(executorPreference: RealWork.taskExecutor) {
        try await store.send(changes, durability, .attempt).outcomes
      }
      return try UnusableAnswer.check(try await sending.value, to: changes.count)
    }
  }

  /// Does what ``persist(_:_:)`` does, and tells whether the store was sent the changes more than
  /// once.
  func send(
    _ changes: [TaskChange]
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    guard let patientStore = patientStore else {
      return (try await persist(changes), false)
    }
    let (outcomes, wasResent) = try await patientStore.send(changes, .durable)
    return (try UnusableAnswer.check(outcomes, to: changes.count), wasResent)
  }

  /// Waits before something is done once more that has failed with a transient error.
  ///
  /// - Throws: The error, if it is not transient, or there is no time to wait.
  func waitToRepeat(after error: any Error, _ retries: inout Int) async throws {
    guard let patience = patientStore?.patience,
      await patience.waits(after: error, retries: retries, .other)
    else { throw error }
    retries += 1
  }

  /// Performs the body, whose calls of the store are looks, which the queue can do without.
  func looking<Result>(_ body: () async throws -> Result) async rethrows -> Result {
    guard patientStore != nil else { return try await body() }
    return try await StoreRetryPolicy.$isLooking.withValue(true) { try await body() }
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

  /// Refuses a name that the package uses itself.
  private static func checkIsUsers(_ name: String) throws(TaskQueueError) {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the name of the value '\(name)' begins with 'steadfast.', as the package's own do; give it "
        + "another one"
    )
  }

  /// Sets a value to what the function makes of the present one, however often that changes.
  func setValue(
    named name: String,
    _ durability: Durability,
    _ next: ([UInt8]?) throws -> [UInt8]?
  ) async throws {
    var retries = 0
    for _ in 0..<QueueStore.mostRefusals {
      let old = try await front.value(named: name)
      let new = try next(old)
      do {
        if try await replaceValue(named: name, old, by: new, durability) { return }
      } catch {
        // It may have been stored. What the next look finds is the present value in any case.
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.comparesWrongly(front, "the value '\(name)'")
  }

  /// Sets a value if it is the expected one.
  ///
  /// The change is a batch of its own: a comparison that fails leaves no change of its batch.
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
    "the store has answered \(to) changes with \(results), which is no answer to them; "
      + "whether they were kept is not known"
  }
}
