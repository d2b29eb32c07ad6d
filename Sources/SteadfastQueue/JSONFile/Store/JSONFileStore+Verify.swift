#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension JSONFileStore {
  /// Reads a file that no store has open, and tells what it holds and all that is wrong with it.
  ///
  /// The file is not changed: an end that a crash has torn stays as it is. A lock file is made
  /// beside it if there is none, so that nobody opens the file meanwhile, and removed. The work is
  /// done on a thread of its own and, once begun, to its end. Of a sound file little is held in
  /// memory beside its tasks; one that is damaged is held whole.
  ///
  /// - Returns: a report, whose ``JSONFileReport/isSound`` says whether the file can be opened.
  /// - Throws: a ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a store
  ///   has the file open, ``JSONFileError/Code/notAQueueFile`` or ``JSONFileError/Code/newerVersion`` if
  ///   nothing can be told of it, ``JSONFileError/Code/systemCall`` if it is not there or can't be read.
  public static func verify(at url: URL) async throws -> JSONFileReport {
    try await ClosedFile(url: url).locked { closed, storage in
      guard let file = try storage.open(.journal) else { throw closed.errors.missing }
      defer { file.close() }
      return try JournalInspection(JournalSource(file)).report
    }
  }

  /// Reads the file back, and checks that every line is good and that the file says what the store
  /// holds.
  ///
  /// It finds what was changed behind the store's back: a disk that has lost bits, an editor, a
  /// file that was cut, replaced or deleted. The store opens if need be, and goes on as before
  /// whatever is found; its writes wait meanwhile, which takes about as long as opening the file.
  /// What is being stored at that moment is left out of the comparison. The system may answer from
  /// its cache instead of reading the disk again. Meanwhile a second table of its tasks is held in
  /// memory; of a damaged file all its bytes, too.
  ///
  /// If there are problems, what the store holds in memory is still right: look at its tasks before
  /// it is closed, and then call ``repair(at:)``.
  ///
  /// - Returns: a report, in which ``JSONFileReport/counts`` are those of the store and
  ///   ``JSONFileReport/isSealed`` is `false`.
  /// - Throws: a ``JSONFileError`` if the store can't be opened, or the file can't be read back.
  public func verify() async throws -> JSONFileReport {
    try await core.open()
    return try await core.verify()
  }
}
