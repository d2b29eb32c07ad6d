extension JSONFileCore.OpenFile {
  /// Closes the file.
  ///
  /// If another process has written the file, this leaves its contents as they are.
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

  /// Goes on with the file that a compaction has put in the place of this one.
  mutating func replaceJournal(with replacement: Journal) {
    journal = replacement
    compactSize = replacement.size
    postponedSize = 0
    postponedCompactSize = 0
    failedCompaction = nil
  }

  /// Postpones the next compaction after one has failed.
  ///
  /// It waits until the file has twice its size, or the tasks take half as many bytes as now,
  /// `compactSize`: then there may be room for them on a full disk.
  ///
  /// - Returns: Whether the reason is another one than that of the last failure.
  mutating func putCompactionOff(
    _ failure: JSONFileStatistics.FailedCompaction,
    compactSize: Int
  ) -> Bool {
    postponedSize = failure.nextSize
    postponedCompactSize = compactSize / 2
    defer { failedCompaction = failure }
    return failure.reason != failedCompaction?.reason
  }
}
