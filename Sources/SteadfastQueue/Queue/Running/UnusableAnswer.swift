/// The error for a store whose results don't match the changes that it was given.
struct UnusableAnswer: Error, CustomStringConvertible {
  let results: [ChangeOutcome]
  let to: Int

  var description: String {
    "the store has answered \(to) changes with \(results), which is no answer to them; "
      + "whether they were kept is not known"
  }
}
