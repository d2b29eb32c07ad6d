/// What a journal asks of a file system: a few files in one folder, each known by its purpose.
///
/// Calls are synchronous and come from one thread at a time, but that several may read a file.
/// Behind the seam is the real file system or, in tests, one that fails on purpose or loses its
/// power.
protocol JournalStorage: AnyObject, Sendable {
  /// Opens a file to read and write it; `nil` if there is none.
  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)?
  /// Makes an empty file where there is none.
  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile
  /// Gives a file another name in one step; a file that bore that name is gone.
  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError)
  /// Removes a file, if there is one.
  func remove(_ name: JournalFileName) throws(SystemCallError)
  /// Sees to it that the next ``synchronizeFolder()`` needs nothing that the system may be short of:
  /// after a renaming it would be too late for that.
  func openFolder() throws(SystemCallError)
  /// Makes durable which file bears which name.
  func synchronizeFolder() throws(SystemCallError)
  /// Where the file is that was opened, made or renamed under a name.
  func place(of name: JournalFileName) throws(SystemCallError) -> JournalPlace
  /// Whether a lock file stands beside the file of a name, as beside every queue's.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool
}

extension JournalStorage {
  /// There: nobody else has access to it.
  func place(of name: JournalFileName) throws(SystemCallError) -> JournalPlace {
    .there(size: nil)
  }

  /// No: nobody else has access to it.
  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool { false }

  /// Removes a file if it is still the one that was opened or made under its name.
  func removeOwn(_ name: JournalFileName) throws(SystemCallError) {
    if case .there = try place(of: name) { try remove(name) }
  }

  /// The journal, and all that it holds; `nil` if there is none.
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

/// A file that is open; it stays the same file when its name changes.
protocol JournalFile: AnyObject, Sendable {
  /// How many bytes it holds.
  func size() throws(SystemCallError) -> Int
  /// Bytes from an offset on: as many as asked for, or as there are.
  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8]
  /// Writes some of the bytes, at least one, over those that are there or behind them, and returns
  /// how many.
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int
  /// Cuts it.
  func truncate(to size: Int) throws(SystemCallError)
  /// Makes its bytes durable, though not its name.
  func synchronize() throws(SystemCallError)
  /// Gives it the permissions that were chosen, when it was found to be what it should be.
  func protect() throws(SystemCallError)
  /// Whether it has other names, under which it is to stay as it is.
  var hasOtherNames: Bool { get }
  /// Gives it up.
  func close()
}

extension JournalFile {
  /// Nothing to do: nobody else has access to it.
  func protect() throws(SystemCallError) {}

  /// No: nobody else has access to it.
  var hasOtherNames: Bool { false }

  /// Writes all of the bytes.
  func writeAll(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) {
    var done = 0
    while done < bytes.count {
      let count = try write(bytes.dropFirst(done), at: offset + done)
      // Asking again could go on for ever.
      guard count > 0 else { throw .nothingWritten }
      done += count
    }
  }
}

/// What a file beside others is for.
enum JournalFileName: Hashable, Sendable {
  case journal
  /// What is to take the journal's place.
  ///
  /// One that is found at opening was left by a crash, or put there by somebody else.
  case replacement
  /// The copy of this number, from 1, of a damaged journal.
  case copy(Int)
  /// The copy of this number, from 1, of a torn end in which lines could be read.
  case torn(Int)
  /// What somebody else has put where a replacement is written, the number counted from 1.
  case stranger(Int)
}

/// Where a file is.
enum JournalPlace: Equatable, Sendable {
  /// It has its name; its size in bytes, or `nil` where nobody else can have changed it.
  case there(size: Int?)
  /// It was deleted, moved or replaced by somebody else.
  case elsewhere
}

/// Why a file was not opened.
enum FileOpeningError: Error, Equatable {
  /// It is not what this library would have made; what it is instead, and what to do.
  case unsafe(String, advice: String)
  /// Whenever it was opened, its name was that of another file.
  case unstable
  /// The replacement can't be made: what stands under its name is not for us to remove.
  case obstructed(String)
  /// Another journal has it open.
  case inUse
  case systemCall(SystemCallError)
}
