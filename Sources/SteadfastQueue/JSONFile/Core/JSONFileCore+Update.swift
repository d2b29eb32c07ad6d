extension JSONFileCore {
  /// Refuses an update that would make its task larger than may be written when the file is
  /// compacted, or than was chosen: what it does not change counts too.
  func checkSizes(of staged: [StagedChange], in table: TaskTable) throws {
    for change in staged where change.isKept {
      guard case .update(_, let update) = change.change, let slot = change.slot,
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
