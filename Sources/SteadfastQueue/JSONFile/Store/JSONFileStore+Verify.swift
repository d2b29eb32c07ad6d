#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension JSONFileStore {
  /// Reads a file that no store has open, and reports what it holds and what is wrong with it.
  ///
  /// The file is not changed: an end that a crash has torn stays as it is. If there is no lock file
  /// beside it, one is made so that no store opens the file during this, and removed again. So the
  /// caller must be allowed to write the file and its folder. Copy a file from a medium that is
  /// read-only, and verify the copy.
  ///
  /// The work is done on a thread of its own. Once it has begun, it runs to its end. In addition to
  /// the tasks, little of a sound file is held in memory. A damaged file is held whole.
  ///
  /// - Returns: A report. Its ``JSONFileReport/isSound`` says whether the file can be opened.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a
  ///   store has the file open, ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` if nothing can be said of it,
  ///   ``JSONFileError/Code/systemCall`` if it is not there or can't be read.
  public static func verify(at url: URL) async throws -> JSONFileReport {
    try await OfflineFile(url: url).locked { closed, storage in
      guard let file = try storage.open(.journal) else { throw closed.errors.missing }
      defer { file.close() }
      return try JournalInspection(JournalSource(file)).report
    }
  }

  /// Reads the file back, and compares it with what the store holds.
  ///
  /// It checks that every line is good and that the file says what the store holds. It finds
  /// changes that the store did not make: bits that the disk lost, edits, and a file that was cut,
  /// replaced or deleted. What is being stored at that moment is left out of the comparison. The
  /// system may answer from its cache instead of reading the disk again.
  ///
  /// The store opens first if it is not open. It goes on as before, whatever is found. Its writes
  /// wait until this ends, which takes about as long as opening the file. Until then, a second
  /// table of the tasks is held in memory and, if the file is damaged, all its bytes too.
  ///
  /// If there are problems, what the store holds in memory is still right: look at its tasks before
  /// it is closed, and then call ``repair(at:)``.
  ///
  /// - Returns: A report. Its ``JSONFileReport/counts`` are those of the store, and its
  ///   ``JSONFileReport/wasClosed`` is `false`.
  /// - Throws: A ``JSONFileError`` if the store can't be opened, or the file can't be read back.
  public func verify() async throws -> JSONFileReport {
    try await core.open()
    return try await core.verify()
  }
}
