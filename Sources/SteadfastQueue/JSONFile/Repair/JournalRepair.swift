#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Copies a damaged file, and then replaces it with a new one of all that can be read.
///
/// The old file stays as it is until the new one takes its name, in one step. The copy is durable
/// before that.
struct JournalRepair {
  /// The new file has the name, but a power cut may undo that.
  struct PerhapsUndone: Error {
    let reason: SystemCallError
    /// The number of the copy.
    let copy: Int
  }

  let report: JSONFileReport
  let skipped: ProblemList
  /// The number of the copy; `nil` if nothing was wrong.
  let copy: Int?

  /// Repairs the journal; returns `nil` if there is no file.
  ///
  /// - Throws: ``PerhapsUndone`` if the file was replaced, but a power cut may undo that. After any
  ///   other error, the file is as it was.
  static func repair(_ storage: any JournalStorage, at date: Date) throws -> JournalRepair? {
    guard let (file, bytes) = try storage.readJournal() else { return nil }
    defer { file.close() }
    let inspection = try JournalInspection(bytes)
    let copy =
      inspection.report.isSound ? nil : try replace(file, bytes, inspection, in: storage, date)
    return JournalRepair(report: inspection.report, skipped: inspection.skipped, copy: copy)
  }

  /// Replaces the file with one of all that can be read, and returns the number of the copy.
  private static func replace(
    _ file: any JournalFile,
    _ bytes: [UInt8],
    _ inspection: JournalInspection,
    in storage: any JournalStorage,
    _ date: Date
  ) throws -> Int {
    let (copy, isNew) = try AsideCopy.keep(
      JournalSource(bytes),
      bytes.indices,
      as: JournalFileName.copy,
      in: storage
    )
    let old = Journal(
      file,
      JournalContents(generation: inspection.report.generation ?? 0, goodSize: bytes.count)
    )
    do {
      var compaction = try Compaction(
        of: old,
        snapshot: inspection.table.snapshot,
        in: storage
      )
      var new = try compaction.finish(old, at: date)
      // Everything is durable already. The seal only makes it look like a file that was closed.
      try? new.close()
      return copy
    } catch Compaction.Failure.poisoned(let error) {
      throw PerhapsUndone(reason: error, copy: copy)
    } catch {
      try? storage.removeOwn(.replacement)
      if isNew { try? storage.removeOwn(.copy(copy)) }
      throw cause(of: error)
    }
  }

  private static func cause(of error: any Error) -> any Error {
    switch error {
    case Compaction.Failure.refused(let error): cause(of: error)
    case Journal.Failure.refused(let error), Journal.Failure.poisoned(let error): error
    case FileOpeningError.systemCall(let error): error
    default: error
    }
  }
}
