#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Journal {
  /// How many bytes are rewritten at a time.
  ///
  /// Without flushes, there may be many to rewrite.
  private static let partSize = 1 << 20

  /// Opens the file, or creates it, and returns the tasks in it.
  ///
  /// If the process crashes in the middle of a step, the step can be repeated. Nothing is changed
  /// before everything that was read is accepted. `date` is called only if a compaction is needed.
  static func open(
    _ storage: any JournalStorage,
    at date: () -> Date = { Date() }
  ) throws -> (journal: Journal, table: TaskTable) {
    guard let file = try storage.open(.journal) else {
      return (try create(in: storage), TaskTable())
    }
    do {
      let whole = try JournalSource(file)
      if whole.count == 0 {
        file.close()
        return (try create(in: storage), TaskTable())
      }
      let source = try whole.withoutReservation()
      let contents = try JournalReader.read(source)
      try Leftover.clear(storage, beside: source, copyStart: contents.goodSize)
      if contents.tornLineCount > 0 {
        let end = contents.goodSize..<source.count
        _ = try AsideCopy.keep(source, end, as: JournalFileName.torn, in: storage)
      }
      if file.hasOtherNames {
        let journal = Journal(file, contents.withSize(source.count), fileSize: whole.count)
        return (try detach(journal, contents.table, in: storage, at: date()), contents.table)
      }
      try file.protect()
      return (try recover(file, whole, contents, in: storage), contents.table)
    } catch {
      file.close()
      throw error
    }
  }

  /// Makes durable what was read of a file, and removes the rest.
  private static func recover(
    _ file: any JournalFile,
    _ source: JournalSource,
    _ contents: JournalContents,
    in storage: any JournalStorage
  ) throws -> Journal {
    if contents.goodSize < source.count { try file.truncate(to: contents.goodSize) }
    // After a failed flush, the system may treat the last lines as stored although they are not. If
    // they are written again, the next flush stores them.
    for start in stride(from: contents.unsyncedOffset, to: contents.goodSize, by: partSize) {
      let part = try source.read(start..<min(start + partSize, contents.goodSize))
      try file.writeAll(part[...], at: start)
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return Journal(file, contents)
  }

  /// Compacts a file that has other names to a new file, and leaves the old one as it is.
  ///
  /// Another name, which a backup has made for instance, is to preserve what the file holds now.
  private static func detach(
    _ journal: Journal,
    _ table: TaskTable,
    in storage: any JournalStorage,
    at date: Date
  ) throws -> Journal {
    do throws(Compaction.Failure) {
      var compaction = try Compaction(
        of: journal,
        snapshot: table.snapshot,
        in: storage
      )
      let replacement = try compaction.finish(journal, at: date)
      journal.abandon()
      return replacement
    } catch {
      throw error.cause
    }
  }

  private static func create(in storage: any JournalStorage) throws -> Journal {
    var journal = try makeReplacement(in: storage, generation: 1, beside: nil)
    do {
      try journal.synchronize()
      try storage.openFolder()
      try storage.rename(.replacement, to: .journal)
    } catch {
      journal.abandon()
      // The next opening removes what can't be removed now.
      try? storage.removeOwn(.replacement)
      throw error
    }
    do {
      try storage.synchronizeFolder()
    } catch {
      journal.abandon()
      throw error
    }
    return journal
  }

  /// Creates a file with a header, which may take the journal's place once it is durable.
  ///
  /// `journal` has the bytes of the present journal, if there is one.
  static func makeReplacement(
    in storage: any JournalStorage,
    generation: Int,
    beside journal: JournalSource?
  ) throws -> Journal {
    try Leftover.clear(storage, beside: journal)
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
      // The next opening removes what can't be removed now.
      try? storage.removeOwn(.replacement)
      throw error
    }
    return journal
  }
}

extension JournalContents {
  /// Returns the contents of a journal that takes `size` bytes for lines, and copies none of them.
  fileprivate func withSize(_ size: Int) -> JournalContents {
    var contents = self
    contents.goodSize = size
    return contents
  }
}
