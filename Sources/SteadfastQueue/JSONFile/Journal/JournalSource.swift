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

  /// The most zeros at the end of a file that may be reserved space.
  static var maxReservation: Int { 64 << 20 }

  /// Returns the bytes without the zeros at their end, which reserve space for lines.
  ///
  /// More zeros than a store reserves stay.
  func withoutReservation() throws(SystemCallError) -> JournalSource {
    var end = count
    while end > 0, count - end <= Self.maxReservation {
      let part = try read(max(0, end - min(Self.searchSize, max(64, count - end)))..<end)
      if let last = part.lastIndex(where: { $0 != 0 }) {
        let lines = end - part.count + last + 1
        return count - lines <= Self.maxReservation ? JournalSource(count: lines, bytes) : self
      }
      guard !part.isEmpty else { break }
      end -= part.count
    }
    return self
  }

  private static var searchSize: Int { 1 << 20 }

  /// Reads all bytes.
  func readAll() throws(JournalProblem) -> [UInt8] {
    do { return try read(0..<count) } catch { throw .unreadable(error) }
  }

  /// Returns the bytes in a range, or fewer if the file has become shorter.
  func read(_ range: Range<Int>) throws(SystemCallError) -> [UInt8] { try bytes(range) }
}
