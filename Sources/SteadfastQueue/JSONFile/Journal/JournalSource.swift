/// The bytes of a file, in memory or read from it when they are asked for.
///
/// Of a file that is read as it is opened only some parts are in memory at a time. Any thread may
/// read; nobody else writes the file meanwhile.
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

  /// A file that is not longer than `sizeInMemory` is read here, at once.
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

  /// All bytes.
  func readAll() throws(JournalProblem) -> [UInt8] {
    do { return try read(0..<count) } catch { throw .unreadable(error) }
  }

  /// The bytes in a range, or fewer if the file has become shorter.
  func read(_ range: Range<Int>) throws(SystemCallError) -> [UInt8] { try bytes(range) }
}
