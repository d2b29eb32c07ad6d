extension JSONFileCore {
  /// Refuses an update that would make its task too large.
  ///
  /// A task is too large if a compaction may not write it, or if it exceeds `maxTaskSize`. The
  /// parts that the update does not change count too.
  func checkSizes(of staged: [StagedChange], in table: TaskTable) throws {
    for change in staged {
      guard case .change(.update(_, let update), let slot) = change.effect,
        update.payload != nil || update.tags != nil
      else { continue }
      var record = table.entries[slot].record
      record.apply(update)
      let insertion = TaskChange.insert(record, onDuplicate: .keep)
      let line = try JournalBody(.change(insertion))
      let limit = JournalBody.maxLength(of: insertion)
      guard line.bytes.count <= limit else {
        throw errors.taskTooLarge(line, limit: limit, "that of the format")
      }
      try checkSize(of: insertion, line)
    }
  }
}
