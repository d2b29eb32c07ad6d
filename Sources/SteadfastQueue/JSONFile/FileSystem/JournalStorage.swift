/// What a journal needs of a file system: a few files in one folder, each named by its purpose.
///
/// Calls are synchronous, and come from one thread at a time, except that several threads may read
/// a file. The implementation is the real file system or, in tests, one that fails on purpose or
/// loses its power.
protocol JournalStorage: AnyObject, Sendable {
  /// Opens a file to read and write it, or returns `nil` if there is none.
  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)?
  /// Makes an empty file, or throws if there is a file of that name.
  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile
  /// Gives a file another name in one step.
  ///
  /// A file that had that name is gone.
  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError)
  /// Removes a file, if there is one.
  func remove(_ name: JournalFileName) throws(SystemCallError)
  /// Takes what the next ``synchronizeFolder()`` needs and the system may be short of.
  ///
  /// Call it before a file is renamed or removed: afterwards it would be too late for that.
  func openFolder() throws(SystemCallError)
  /// Makes the names of the files durable.
  func synchronizeFolder() throws(SystemCallError)
  /// Returns where the file is that was opened, made or renamed under a name.
  func place(of name: JournalFileName) throws(SystemCallError) -> JournalPlace
  /// Returns whether the file of a name has a lock file beside it, as every queue's file has.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool
  /// Whether a write that makes a file too large may end the process, by a signal to the thread
  /// that writes.
  var isSizeLimited: Bool { get }
}

extension JournalStorage {
  /// Returns `there`, as no other process has access to the file.
  func place(of name: JournalFileName) throws(SystemCallError) -> JournalPlace {
    .there(size: nil)
  }

  /// Returns `false`, as no other process has access to the file.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool { false }

  /// `false`, as no signals are sent.
  var isSizeLimited: Bool { false }

  /// Removes a file if it is still the one that was opened or made under its name.
  func removeOwn(_ name: JournalFileName) throws(SystemCallError) {
    if case .there = try place(of: name) { try remove(name) }
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
/// It stays the same file when its name changes.
protocol JournalFile: AnyObject, Sendable {
  /// Returns the number of bytes in the file.
  func size() throws(SystemCallError) -> Int
  /// Reads bytes from an offset on: as many as asked for, or as many as there are.
  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8]
  /// Writes some of the bytes, at least one, and returns how many.
  ///
  /// They overwrite the bytes of the file, or are added at its end.
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int
  /// Cuts the file to a size.
  func truncate(to size: Int) throws(SystemCallError)
  /// Makes the bytes of the file durable, but not its name.
  func synchronize() throws(SystemCallError)
  /// Gives the file the chosen permissions, after it was found to be what it should be.
  func protect() throws(SystemCallError)
  /// Whether the file has other names, under which it must stay as it is.
  var hasOtherNames: Bool { get }
  /// Closes the file, and gives up its lock.
  func close()
}

extension JournalFile {
  /// Does nothing, as no other process has access to the file.
  func protect() throws(SystemCallError) {}

  /// `false`, as no other process has access to the file.
  var hasOtherNames: Bool { false }

  /// Writes all of the bytes.
  func writeAll(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) {
    var done = 0
    while done < bytes.count {
      let count = try write(bytes.dropFirst(done), at: offset + done)
      // Another try could go on for ever.
      guard count > 0 else { throw .nothingWritten }
      done += count
    }
  }
}

/// The purpose of a file in the journal's folder.
enum JournalFileName: Hashable, Sendable {
  case journal
  /// The file that is to take the place of another one, such as the journal.
  ///
  /// A replacement that is found at opening was left by a crash, or put there by another program.
  case replacement
  /// A copy of a damaged journal.
  ///
  /// The copies are numbered from 1.
  case copy(Int)
  /// A copy of a torn end in which lines could be read.
  ///
  /// The copies are numbered from 1.
  case torn(Int)
  /// A file that another program put where a replacement is written.
  ///
  /// These files are numbered from 1.
  case stranger(Int)
}

/// Where a file is.
enum JournalPlace: Equatable, Sendable {
  /// The file has its name.
  ///
  /// The size is in bytes, or `nil` if no other process can have changed it.
  case there(size: Int?)
  /// Another process deleted, moved or replaced the file.
  case elsewhere
}

/// The reason that a file was not opened.
enum FileOpeningError: Error, Equatable {
  /// The file is not what this library would have made: what it is instead, and what to do.
  case unsafe(String, advice: String)
  /// Each time the file was opened, another file had its name by then.
  case unstable
  /// The replacement can't be made: this library must not remove the file that has its name.
  case obstructed(String)
  /// Another journal has the file open.
  case inUse
  case systemCall(SystemCallError)
}
