#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension JSONFileStore {
  /// Saves what can be read of a damaged file that no store has open, and keeps a copy of it.
  ///
  /// The file is first copied, byte for byte and durably, to a name beside it that is free:
  /// `queue.jsonl.damaged-1`, and so on. Then a new file of all that can be read takes its place in
  /// one step. A file with nothing wrong is left alone, and so is a torn end, which opening cuts off.
  /// <doc:DamagedFiles> tells what is saved and what is not: in short, a lost insertion is a lost
  /// task, and a lost end is a task that is performed again.
  ///
  /// A crash at any moment leaves the damaged file or the repaired one, with the whole copy beside
  /// it in that case; repairing again is always possible. A copy that is there already, because a
  /// crash has cut an earlier repair short, is not made twice. When it throws, the file is as it
  /// was and what was made is removed, unless the error says otherwise. The work is done on a
  /// thread of its own and, once begun, to its end; unlike at opening, the whole file is held in
  /// memory beside its tasks.
  ///
  /// - Returns: what was found, what is lost, and where the copy is.
  /// - Throws: a ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a
  ///   store has the file open; ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` for a file that this version did not write, or of which
  ///   no line can be read; ``JSONFileError/Code/systemCall`` if it is not there, can't be read, or
  ///   there is no room for two files of its size; ``JSONFileError/Code/outcomeUnknown`` if the
  ///   disk failed at the very end: the file is repaired, but a power cut may bring the damaged one
  ///   back.
  public static func repair(at url: URL) async throws -> JSONFileRepair {
    try await ClosedFile(url: url).locked { closed, storage in
      try repair(closed, storage)
    }
  }

  private static func repair(
    _ closed: ClosedFile,
    _ storage: FileStorage
  ) throws -> JSONFileRepair {
    do {
      guard let repair = try JournalRepair.repair(storage, at: Date()) else {
        throw closed.errors.missing
      }
      return JSONFileRepair(
        report: repair.report,
        copy: repair.copy.map { URL(filePath: storage.path(.copy($0))) },
        skippedLines: repair.skipped.first,
        skippedLineCount: repair.skipped.count
      )
    } catch let error as SystemCallError {
      throw closed.errors.repairing(error)
    } catch let error as JournalRepair.PerhapsUndone {
      throw closed.errors.repairedPerhaps(error.reason, copy: storage.path(.copy(error.copy)))
    }
  }
}

/// What a repair of a queue's file has saved, and what is lost.
public struct JSONFileRepair: Sendable, Hashable {
  /// The file as it was found, with all that was wrong; its ``JSONFileReport/counts`` are the tasks
  /// that were saved.
  public let report: JSONFileReport
  /// The file as it was, byte for byte; `nil` if nothing was wrong and nothing was done.
  public let copy: URL?
  /// The lines that say nothing in the repaired file, because they can't be read, or do not fit what
  /// is known of their tasks; not more than a thousand of them.
  ///
  /// Lines that are missing are among ``JSONFileReport/lostRecordCount`` alone.
  public let skippedLines: [JSONFileReport.Problem]
  /// How many such lines there are.
  public let skippedLineCount: Int
}
