/// The bytes of a file, which are in memory, or are read from the file on demand.
///
/// While a file is opened, only some of its parts are in memory at a time. Any thread may read.
/// Nothing else may write the file at the same time.
struct JournalSource: Sendable {
  /// How many bytes there are.
  let count: Int
  private let bytes: @Sendable (Range<Int>) throws(SystemCallError) -> [UInt8]

  init(
    count: Int,
    _ bytes: @escaping @Sendable (Range<Int>) throws(SystemCallError) -> [UInt8]
  ) {
    self.count = count
    self.bytes = bytes
  }

  init(_ bytes: [UInt8]) {
    self.init(count: bytes.count) { range in
      range == bytes.indices ? bytes : Array(bytes[range])
    }
  }

  /// Reads a file at once if it is not longer than `sizeInMemory`, and otherwise on demand.
  init(
    _ file: any JournalFile,
    sizeInMemory: Int = JournalReader.partSize
  ) throws(SystemCallError) {
    let count = try file.size()
    if count <= sizeInMemory {
      self.init(try file.read(count, at: 0))
    } else {
      self.init(count: count) { range throws(SystemCallError) in
        try file.read(range.count, at: range.lowerBound)
      }
    }
  }

  /// Reads all bytes.
  func readAll() throws(JournalProblem) -> [UInt8] {
    do { return try read(0..<count) } catch { throw .unreadable(error) }
  }

  /// Returns the bytes in a range, or fewer if the file has become shorter.
  func read(_ range: Range<Int>) throws(SystemCallError) -> [UInt8] { try bytes(range) }
}
