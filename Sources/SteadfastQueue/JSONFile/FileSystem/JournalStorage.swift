/// The file system operations of a journal: a few files in one folder, each named by its purpose.
///
/// Calls are synchronous, and come from one thread at a time, except that several threads may read
/// a file. The implementation is the real file system or, in tests, one that fails on purpose or
/// simulates power cuts.
protocol JournalStorage: AnyObject, Sendable {
  /// Opens a file for reading and writing, or returns `nil` if there is none.
  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)?
  /// Creates an empty file, or throws if a file of that name exists.
  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile
  /// Renames a file in one step, replacing any file that had the new name.
  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError)
  /// Removes a file, if there is one.
  func remove(_ name: JournalFileName) throws(SystemCallError)
  /// Acquires those resources for the next ``synchronizeFolder()`` that the system may run out of.
  ///
  /// Call it before a file is renamed or removed: afterwards, a failure would come too late.
  func openFolder() throws(SystemCallError)
  /// Makes the names of the files durable.
  func synchronizeFolder() throws(SystemCallError)
  /// Returns the location of the file that was opened, created or renamed under a name.
  func location(of name: JournalFileName) throws(SystemCallError) -> JournalLocation
  /// Returns whether the named file has a lock file beside it, as every queue's file does.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool
  /// Whether a write that makes a file too large may end the process, by a signal to the writing
  /// thread.
  var isSizeLimited: Bool { get }
}

extension JournalStorage {
  /// Returns `there`, because no other process has access to the file.
  func location(of name: JournalFileName) throws(SystemCallError) -> JournalLocation {
    .atItsPath(size: nil)
  }

  /// Returns `false`, because no other process has access to the file.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool { false }

  /// `false`, because no signals are sent.
  var isSizeLimited: Bool { false }

  /// Removes a file if it is still the one that was opened or created under its name.
  func removeUnlessReplaced(_ name: JournalFileName) throws(SystemCallError) {
    if case .atItsPath = try location(of: name) { try remove(name) }
  }

  /// Opens the journal and reads all of it, or returns `nil` if there is none.
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
/// The object stands for the same file even after the name of the file has changed.
protocol JournalFile: AnyObject, Sendable {
  /// Returns the number of bytes in the file.
  func size() throws(SystemCallError) -> Int
  /// Reads the requested number of bytes from an offset, or fewer at the end of the file.
  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8]
  /// Writes some of the bytes, at least one, and returns the number written.
  ///
  /// The bytes overwrite existing ones, or extend the file.
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int
  /// Shortens the file to a size.
  func truncate(to size: Int) throws(SystemCallError)
  /// Makes the bytes of the file durable, but not its name.
  func synchronize() throws(SystemCallError)
  /// Sets the file's permissions, after its contents were checked.
  func protect() throws(SystemCallError)
  /// Whether the file has other names; then it must not be changed.
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
      // Another try might repeat forever.
      guard count > 0 else { throw .nothingWritten }
      done += count
    }
  }
}

/// The purpose of a file in the journal's folder.
enum JournalFileName: Hashable, Sendable {
  case journal
  /// The file that will replace another one, such as the journal.
  ///
  /// A replacement that exists at opening was left by a crash, or created by another program.
  case replacement
  /// A copy of a damaged journal.
  ///
  /// The copies are numbered from 1.
  case copy(Int)
  /// A copy of a torn end in which complete lines were found.
  ///
  /// The copies are numbered from 1.
  case torn(Int)
  /// Another program's file that was at the path of a replacement.
  ///
  /// These files are numbered from 1.
  case otherProgramsFile(Int)
}

/// The location of a file.
enum JournalLocation: Equatable, Sendable {
  /// The file has its name.
  ///
  /// The size is in bytes, or `nil` if no other process can have changed it.
  case atItsPath(size: Int?)
  /// Another process deleted, moved or replaced the file.
  case notAtItsPath
}

/// The reason that a file was not opened.
enum FileOpeningError: Error, Equatable {
  /// The file is not one that this library would have created: the reason, and advice.
  case unsafe(String, advice: String)
  /// Each time the file was opened, its name already belonged to another file.
  case unstable
  /// The replacement can't be created: this library must not remove the file that has its name.
  case obstructed(String)
  /// Another journal has the file open.
  case inUse
  case systemCall(SystemCallError)
}
