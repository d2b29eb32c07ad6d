extension TaskQueue {
  /// Has the store keep changes, and makes sure that each has an answer.
  nonisolated func keep(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    let results = try await store.apply(changes, durability: durability)
    guard results.count == changes.count else {
      throw UnusableAnswer(results: results, to: changes.count)
    }
    return results
  }
}

/// A store has answered changes with what is no answer to them.
struct UnusableAnswer: Error, CustomStringConvertible {
  let results: [ChangeOutcome]
  let to: Int

  var description: String {
    "the store has answered \(to) changes with \(results), which is no answer to them; "
      + "whether they were kept is not known"
  }
}
