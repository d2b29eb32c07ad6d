/// What a journal asks of a file system: one file, and a temporary one beside it.
///
/// Calls are synchronous and come from one thread at a time. Behind the seam is the real file
/// system or, in tests, one that fails on purpose.
protocol JournalStorage: AnyObject, Sendable {
  /// All bytes of the file; `nil` if there is none.
  func read() throws(SystemCallError) -> [UInt8]?
  /// Makes the file with these contents, or replaces it: durably, and never in part.
  func replace(with bytes: [UInt8]) throws(SystemCallError)
  /// Opens the file for what follows.
  func open() throws(SystemCallError)
  /// Appends some bytes, at least one, and returns how many.
  func append(_ bytes: ArraySlice<UInt8>) throws(SystemCallError) -> Int
  /// Writes bytes over those that are there.
  func overwrite(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError)
  /// Cuts the file.
  func truncate(to size: Int) throws(SystemCallError)
  /// Makes all that was written durable.
  func synchronize() throws(SystemCallError)
  /// Makes the file's name durable.
  func synchronizeFolder() throws(SystemCallError)
  /// Removes the file's name; it does nothing if there is none.
  func delete() throws(SystemCallError)
  /// Gives the file up.
  func close()
}
