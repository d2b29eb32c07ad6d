/// Unique keys of tasks that are added in one call.
extension TaskQueue {
  /// Returns the tasks without those whose name and unique key another one has.
  ///
  /// Of such tasks, the last one replaces the others; with other policies, the first one stays.
  static func oneOfEachKey(
    _ records: [TaskRecord],
    _ policy: UniquePolicy
  ) throws(TaskQueueError) -> [TaskRecord] {
    var keys: Set<NamedKey> = []
    func isFirst(_ record: TaskRecord) -> Bool {
      NamedKey(record).map { keys.insert($0).inserted } ?? true
    }
    if policy == .replace { return records.reversed().filter(isFirst).reversed() }
    let kept = records.filter(isFirst)
    if policy == .reject, kept.count < records.count {
      throw TaskQueueError(
        .duplicate,
        "two of the new tasks have the same unique key; give each of them another one"
      )
    }
    return kept
  }

  /// Returns the unique keys whose turns a call takes that replaces or changes these tasks.
  ///
  /// Of two such calls at the same time, it would be unknown which was stored first. That holds for
  /// a store that applies changes at once, too: each call tells what it has stored after that.
  nonisolated func turnKeys(of records: some Collection<TaskRecord>) -> Set<String> {
    Set(records.compactMap(\.uniqueKey))
  }
}

/// A unique key, and the name to which it belongs.
private struct NamedKey: Hashable {
  let name: ExactText
  let key: ExactText

  init?(_ record: TaskRecord) {
    guard let key = record.uniqueKey else { return nil }
    (name, self.key) = (ExactText(record.name), ExactText(key))
  }
}

extension [EnqueuedTask] {
  /// Returns the task that stands for each of the records, of which only `kept` were stored.
  func standing(for records: [TaskRecord], _ kept: [TaskRecord]) -> [EnqueuedTask] {
    var ofKey: [NamedKey: EnqueuedTask] = [:]
    var ofID: [TaskID: EnqueuedTask] = [:]
    for (record, task) in zip(kept, self) {
      if let key = NamedKey(record) { ofKey[key] = task }
      ofID[record.id] = task
    }
    return records.compactMap { record in
      ofID[record.id] ?? NamedKey(record).flatMap { ofKey[$0]?.asFound }
    }
  }
}
