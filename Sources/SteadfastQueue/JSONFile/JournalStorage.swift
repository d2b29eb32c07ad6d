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
  /// Makes durable which file bears which name.
  func synchronizeFolder() throws(SystemCallError)
  /// Whether the file that was opened, made or renamed under a name bears it still.
  func isInPlace(_ name: JournalFileName) throws(SystemCallError) -> Bool
}

extension JournalStorage {
  /// Yes: nobody else has access to it.
  func isInPlace(_ name: JournalFileName) throws(SystemCallError) -> Bool { true }

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
  /// Gives it up.
  func close()
}

extension JournalFile {
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
  /// One that is found at opening was left by a crash.
  case replacement
  /// The copy of this number, from 1, of a damaged journal.
  case copy(Int)
}

/// Why a file was not opened.
enum FileOpeningError: Error, Equatable {
  /// It is not what this library would have made; what it is instead, and what to do.
  case unsafe(String)
  /// Another journal has it open.
  case inUse
  case systemCall(SystemCallError)
}
