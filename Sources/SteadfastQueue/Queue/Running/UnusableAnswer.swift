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
