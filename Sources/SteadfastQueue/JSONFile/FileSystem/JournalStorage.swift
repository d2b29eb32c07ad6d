/// Operations on the files of a journal, which are in one folder, and are identified by their
/// purpose.
///
/// Only one thread at a time may call these methods. The implementation is the real file system or,
/// in tests, one that fails on purpose or simulates power cuts.
protocol JournalStorage: AnyObject, Sendable {
  /// Opens a file for reading and writing; returns `nil` if the file does not exist.
  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)?
  /// Creates an empty file; throws if the file already exists.
  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile
  /// Renames a file, and replaces any file that has the new name, in one step.
  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError)
  /// Removes a file; does nothing if the file does not exist.
  func remove(_ name: JournalFileName) throws(SystemCallError)
  /// Opens the folder, so that the next ``synchronizeFolder()`` needs no new file descriptor.
  ///
  /// Call this before renaming or removing a file: if the folder could not be opened afterwards,
  /// the change could no longer be made durable.
  func openFolder() throws(SystemCallError)
  /// Makes the names of the files durable.
  func synchronizeFolder() throws(SystemCallError)
  /// Returns whether the file that was opened, created or renamed with this name is still at its
  /// path.
  func location(of name: JournalFileName) throws(SystemCallError) -> JournalLocation
  /// Returns whether there is a lock file beside the file, so that a queue may be using it.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool
  /// Whether the system limits the size of files, so that a write may send a signal that ends the
  /// process.
  var isSizeLimited: Bool { get }
}

extension JournalStorage {
  /// Returns `atItsPath`, because no other process has access to the file.
  func location(of name: JournalFileName) throws(SystemCallError) -> JournalLocation {
    .atItsPath(size: nil)
  }

  /// Returns `false`, because no other process has access to the file.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool { false }

  /// `false`, because no signal is sent.
  var isSizeLimited: Bool { false }

  /// Removes a file, unless another program has replaced the file that was opened or created.
  func removeUnlessReplaced(_ name: JournalFileName) throws(SystemCallError) {
    if case .atItsPath = try location(of: name) { try remove(name) }
  }

  /// Opens the journal and reads all its bytes; returns `nil` if there is no journal.
  func readJournal() throws -> (file: any JournalFile, bytes: [UInt8])? {
    guard let file = try open(.journal) else { return nil }
    do {
      return (file, try file.read(try file.size(), at: 0))
    } catch {
      file.close()
      throw error
    }
  }
}

/// An open file.
///
/// After the file was renamed, the object still refers to the same file. Several threads may read
/// the file at the same time.
protocol JournalFile: AnyObject, Sendable {
  /// Returns the number of bytes in the file.
  func size() throws(SystemCallError) -> Int
  /// Reads up to `count` bytes; fewer only at the end of the file.
  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8]
  /// Writes one or more of the bytes, and returns the number of bytes that were written.
  ///
  /// The bytes overwrite existing ones, or extend the file.
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int
  /// Shortens the file to a size.
  func truncate(to size: Int) throws(SystemCallError)
  /// Makes the bytes of the file durable, but not its name.
  func synchronize() throws(SystemCallError)
  /// Sets the file's permissions, after its contents were checked.
  func protect() throws(SystemCallError)
  /// Whether the file has other names (hard links), so that it must not be changed.
  var hasOtherNames: Bool { get }
  /// Closes the file, and releases its lock.
  func close()
}

extension JournalFile {
  /// Does nothing, because no other process has access to the file.
  func protect() throws(SystemCallError) {}

  /// `false`, because no other process has access to the file.
  var hasOtherNames: Bool { false }

  /// Writes all of the bytes.
  func writeAll(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) {
    var done = 0
    while done < bytes.count {
      let count = try write(bytes.dropFirst(done), at: offset + done)
      // Trying again might never end.
      guard count > 0 else { throw .nothingWritten }
      done += count
    }
  }
}

/// A file of the journal, identified by its purpose.
enum JournalFileName: Hashable, Sendable {
  case journal
  /// A temporary file that is renamed when it is complete, for example to replace the journal.
  ///
  /// If the file exists when the journal is opened, a crash has left it, or another program has
  /// created it.
  case replacement
  /// A copy of a damaged journal.
  ///
  /// The copies are numbered from 1.
  case copy(Int)
  /// A copy of lines that opening has removed from the end of the journal, because a crash had torn
  /// them.
  ///
  /// The copies are numbered from 1.
  case torn(Int)
  /// Another program's file, which was at the path of the replacement and was renamed.
  ///
  /// These files are numbered from 1.
  case otherProgramsFile(Int)
}

/// Whether a file is still at its path.
enum JournalLocation: Equatable, Sendable {
  /// The file is at its path.
  ///
  /// The size is in bytes; `nil` if no other process can change it.
  case atItsPath(size: Int?)
  /// Another program has deleted, moved or replaced the file.
  case notAtItsPath
}

/// The reason that a file was not opened.
enum FileOpeningError: Error, Equatable {
  /// The file is not safe to use, for the given reason. The advice says what to do.
  case unsafe(String, advice: String)
  /// Each time that the file was opened, another file was already at its path.
  case unstable
  /// The temporary file can't be created: another file has its name, and must not be removed for
  /// the given reason.
  case obstructed(String)
  /// Another journal has the file open.
  case inUse
  case systemCall(SystemCallError)
}
