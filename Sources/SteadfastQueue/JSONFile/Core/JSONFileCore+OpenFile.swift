extension JSONFileCore.OpenFile {
  /// Closes the file, unless somebody else has written it: then it is left as it is.
  mutating func close() throws {
    let place = Result { () throws(Journal.Failure) in try storage.checkPlace(of: journal) }
    if case .failure(.changed) = place { journal.abandon() } else { try journal.close() }
    try place.get()
  }

  /// Deletes the file, unless another one is in its place.
  func delete() throws {
    journal.abandon()
    guard case .there = try storage.place(of: .journal) else { throw Journal.Failure.displaced }
    try storage.remove(.journal)
    try storage.removeOwn(.replacement)
    try storage.synchronizeFolder()
  }

  /// A compaction has put another file in the place of this one.
  mutating func replaceJournal(with replacement: Journal) {
    journal = replacement
    compactSize = replacement.size
    postponedSize = 0
    failedCompaction = nil
  }

  /// A compaction has failed: another one is tried when the file has twice its size.
  ///
  /// Whether it is for another reason than the last one.
  mutating func putCompactionOff(_ failure: JSONFileStatistics.FailedCompaction) -> Bool {
    postponedSize = failure.nextSize
    defer { failedCompaction = failure }
    return failure.reason != failedCompaction?.reason
  }
}
