/// How a queue has its store apply changes.
extension TaskQueue {
  /// How often a store may refuse what the queue asks again before that counts as a fault of the
  /// store.
  ///
  /// It may do so while another caller changes the same task, key or value.
  static let mostRefusals = 1_000

  /// Has the store apply changes, and checks that there is a result for each of them.
  nonisolated func persist(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    try UnusableAnswer.check(
      try await store.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Does what ``persist(_:_:)`` does, and makes no second call after a transient error.
  nonisolated func persistOnce(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    let store = backing.patientStore?.base ?? store
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
  nonisolated func persistInAttempt(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    do {
      return try await persist(changes, durability)
    } catch {
      guard error.isTransientFailure, Task.isCancelled, let store = backing.patientStore else {
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
  nonisolated func send(
    _ changes: [TaskChange]
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    guard let patientStore = backing.patientStore else {
      return (try await persist(changes), false)
    }
    let (outcomes, wasResent) = try await patientStore.send(changes, .durable)
    return (try UnusableAnswer.check(outcomes, to: changes.count), wasResent)
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
