#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension JSONFileStore {
  /// Saves what can be read of a damaged file that no store has open, and keeps a copy of the file.
  ///
  /// The file is first copied, byte for byte and durably, to a free name beside it:
  /// `queue.jsonl.damaged-1`, and so on. Then a new file with everything that can be read takes its
  /// place in one step. If nothing is wrong, the file is left alone. A torn end is left alone too,
  /// because opening cuts it off. <doc:DamagedFiles> explains what is saved and what is not. In
  /// short: if an insertion is lost, the task is lost; if an end is lost, the task is performed
  /// again.
  ///
  /// A crash at any moment leaves either the damaged file, or the repaired one with the whole copy
  /// beside it. Repairing again is always possible. If a crash cut an earlier repair short and its
  /// copy is there, no second copy is made. When the repair throws, the file is as it was and what
  /// was made is removed, unless the error says otherwise.
  ///
  /// The work is done on a thread of its own. Once it has begun, it runs to its end. Unlike
  /// opening, it holds the whole file in memory, in addition to the tasks.
  ///
  /// - Returns: What was found, what is lost, and where the copy is.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a
  ///   store has the file open; ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` for a file that this version did not write, or of which
  ///   no line can be read; ``JSONFileError/Code/systemCall`` if it is not there, can't be read, or
  ///   there is no room for two files of its size; ``JSONFileError/Code/outcomeUnknown`` if the
  ///   disk failed at the very end: the file is repaired, but a power cut may bring the damaged one
  ///   back.
  public static func repair(at url: URL) async throws -> JSONFileRepair {
    try await OfflineFile(url: url).locked { closed, storage in
      try repair(closed, storage)
    }
  }

  private static func repair(
    _ closed: OfflineFile,
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
  /// The report on the file as it was found, with everything that was wrong.
  ///
  /// Its ``JSONFileReport/counts`` are the tasks that were saved.
  public let report: JSONFileReport
  /// The copy of the file as it was, byte for byte; `nil` if nothing was wrong and nothing was
  /// done.
  public let copy: URL?
  /// The lines that are left out of the repaired file, a thousand of them at most.
  ///
  /// A line is left out if it can't be read, or does not fit what is known of its task. Lines that
  /// are missing are counted only by ``JSONFileReport/lostRecordCount``.
  public let skippedLines: [JSONFileReport.Problem]
  /// How many lines are left out of the repaired file.
  public let skippedLineCount: Int
}
