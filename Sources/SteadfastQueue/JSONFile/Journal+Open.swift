extension Journal {
  /// How many bytes are written once more at a time: without flushes there may be many.
  private static let partSize = 1 << 20

  /// Opens the file, or makes it, and returns the tasks in it.
  ///
  /// Every step may be repeated after a crash in its midst.
  static func open(
    _ storage: any JournalStorage
  ) throws -> (journal: Journal, table: TaskTable) {
    guard let file = try storage.open(.journal) else {
      return (try create(in: storage), TaskTable())
    }
    do {
      let source = try JournalSource(file)
      if source.count == 0 {
        file.close()
        return (try create(in: storage), TaskTable())
      }
      let contents = try JournalReader.read(source)
      try storage.remove(.replacement)
      return (try recover(file, source, contents, in: storage), contents.table)
    } catch {
      file.close()
      throw error
    }
  }

  /// Makes durable what was read of a file, and nothing else in it.
  private static func recover(
    _ file: any JournalFile,
    _ source: JournalSource,
    _ contents: JournalContents,
    in storage: any JournalStorage
  ) throws -> Journal {
    if contents.goodSize < source.count { try file.truncate(to: contents.goodSize) }
    // After a flush that failed, the system may take the last lines for stored though they are
    // not. Written once more, they are stored by the next flush.
    for start in stride(from: contents.unsyncedOffset, to: contents.goodSize, by: partSize) {
      let part = try source.read(start..<min(start + partSize, contents.goodSize))
      try file.writeAll(part[...], at: start)
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    var journal = Journal(file, contents)
    if contents.interruptionCount > 0 {
      // Whoever reads the file later must know it too where the lines that follow rest on it.
      try journal.append([[JournalBody(.interruption)]])
      try journal.synchronize()
    }
    return journal
  }

  private static func create(in storage: any JournalStorage) throws -> Journal {
    var journal = try makeReplacement(in: storage, generation: 1)
    do {
      try journal.synchronize()
      try storage.rename(.replacement, to: .journal)
      try storage.synchronizeFolder()
    } catch {
      journal.abandon()
      throw error
    }
    return journal
  }

  /// Makes a file with a header that may take the journal's place when it is durable.
  static func makeReplacement(
    in storage: any JournalStorage,
    generation: Int
  ) throws -> Journal {
    try storage.remove(.replacement)
    var journal = Journal(
      try storage.create(.replacement),
      JournalContents(generation: generation)
    )
    do {
      try journal.append([
        [JournalBody(.header(version: JournalEntry.formatVersion, generation: generation))]
      ])
    } catch {
      journal.abandon()
      throw error
    }
    return journal
  }
}
