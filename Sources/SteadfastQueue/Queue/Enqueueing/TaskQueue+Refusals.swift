/// New tasks that a store does not add.
extension TaskQueue {
  /// Returns whether the store has added the tasks; if not, it holds a task with one of their IDs.
  ///
  /// - Throws: The reason why the store has refused them.
  nonisolated func wereInserted(
    _ records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) throws -> Bool {
    guard !results.contains(.identityTaken) else {
      observers.didNotEnqueue(records)
      return false
    }
    if let error = unmetDependency(of: records, results) ?? rejection(of: records, results, policy)
    {
      observers.didNotEnqueue(records)
      throw error
    }
    return true
  }

  /// Returns the error for the first task that was rejected, if there is one.
  private nonisolated func rejection(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome],
    _ policy: UniquePolicy
  ) -> TaskQueueError? {
    guard policy == .reject else { return nil }
    for (record, result) in zip(records, results) {
      guard case .duplicate(let twin) = result else { continue }
      return TaskQueueError(
        .duplicate,
        "a task with the unique key '\(record.uniqueKey ?? "")' is there already: \(twin); use that "
          + "one, which task(_:) returns, or give the new one another key or another onDuplicate"
      )
    }
    return nil
  }

  /// Returns the error for the first task that would wait for another one without end, if there is
  /// one.
  private nonisolated func unmetDependency(
    of records: some Collection<TaskRecord>,
    _ results: [ChangeOutcome]
  ) -> TaskQueueError? {
    for (record, result) in zip(records, results) {
      guard case .unmetDependency(let id) = result else { continue }
      return TaskQueueError(
        .unmetDependency,
        "the new task of the name '\(record.name)' would wait without end for the task \(id), which is "
          + "not in the store, or has ended without success; name tasks that have not ended, or "
          + "enqueue both in one call"
      )
    }
    return nil
  }
}
