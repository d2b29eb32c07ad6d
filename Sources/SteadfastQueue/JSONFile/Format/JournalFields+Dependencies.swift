/// Reads what a task waits for.
extension JournalFields {
  /// The dependencies of a task; `nil` if the line has none.
  func dependencies() throws(JournalDecodingError) -> TaskDependencies? {
    guard hasAny(Self.dependencyFields) else { return nil }
    var dependencies = TaskDependencies(
      on: Set(try idsIfAny(.after)),
      rule: try rule(),
      follower: has(.follower) ? try id(.follower) : nil,
      cause: has(.cause) ? try id(.cause) : nil,
      batch: has(.members) ? try batch() : nil
    )
    for id in try idsIfAny(.afterAbandoned) { dependencies.failed[id] = .abandoned }
    for id in try idsIfAny(.afterCancelled) { dependencies.failed[id] = .cancelled }
    return dependencies
  }

  private static let dependencyFields = JournalFieldSet([
    .after, .when, .follower, .cause, .members, .afterAbandoned, .afterCancelled,
  ])

  private func rule() throws(JournalDecodingError) -> DependencyRule {
    guard has(.when) else { return .allSucceeded }
    guard let rule = DependencyRule(rawValue: try text(.when)) else {
      throw .malformed("the rule for its dependencies is unknown")
    }
    return rule
  }

  private func batch() throws(JournalDecodingError) -> BatchProgress {
    let batch = BatchProgress(
      total: try integer(.members),
      succeeded: try integer(.membersSucceeded),
      failed: try integer(.membersFailed)
    )
    guard batch.isPossible else { throw .malformed("the progress of its batch is impossible") }
    return batch
  }
}
