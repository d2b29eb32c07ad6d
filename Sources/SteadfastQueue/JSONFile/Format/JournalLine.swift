/// The start of a line, `{"c":"<checksum>","b":<n>,"s":<n>,`, and the range of its body, which is
/// the rest.
///
/// `c` is the checksum of every byte after the checksum. `s` is the line's sequence number. `b` is
/// the first sequence number that was not known to be durable when the line was written. If the
/// next line belongs to the same batch, `"more":true,` follows.
struct JournalLine: Sendable {
  /// The maximum length of a line, in bytes; a longer line is neither written nor read.
  static var maxLength: Int { 16 << 20 }

  /// The maximum length of a line without its body, but with the line feed, in bytes.
  static var maxEnvelopeLength: Int { 80 }

  /// The first sequence number that was not known to be durable when the line was written.
  let firstUnsynced: UInt64
  let sequence: UInt64
  /// Whether the next line belongs to the same batch.
  let isContinued: Bool
  /// The range of the body: the fields of the entry, and the closing brace.
  private(set) var body: Range<Int>

  /// The first bytes of every line.
  ///
  /// Strings in a line can't contain them, because quotation marks are escaped.
  static let prefix = Array(#"{"c":""#.utf8)
  private static let checksumEnd = prefix.count + 8
  /// The first bytes of every line, with zeros instead of the checksum.
  private static let opening = prefix + Array(#"00000000","b":"#.utf8)
  private static let sequenceKey = Array(#","s":"#.utf8)
  /// The body of a seal, which is a line that records the closing of the file.
  private static let seal = Array(#""k":"seal"}"#.utf8)
  /// The number of bytes at the end of a file that are searched for a seal.
  static var maxSealLength: Int { maxEnvelopeLength + seal.count }
  private static var continuation: StaticString { #""more":true,"# }

  // MARK: Writing

  static func append(
    _ body: JournalBody,
    sequence: UInt64,
    firstUnsynced: UInt64,
    isContinued: Bool,
    to bytes: inout [UInt8]
  ) {
    let start = bytes.count
    bytes.append(contentsOf: opening)
    bytes.append(contentsOf: String(firstUnsynced).utf8)
    bytes.append(contentsOf: sequenceKey)
    bytes.append(contentsOf: String(sequence).utf8)
    bytes.append(UInt8(ascii: ","))
    if isContinued {
      // The string is a literal, so its bytes are never freed.
      continuation.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
    }
    bytes.append(contentsOf: body.bytes)
    bytes.append(0x0A)
    let covered = start + checksumEnd..<bytes.count - 1
    let digits = Hexadecimal.eightDigits(of: CRC32C.checksum(bytes[covered]))
    // The checksum's eight digits are directly before the bytes that it covers.
    unsafe bytes.withUnsafeMutableBytes { bytes in
      unsafe bytes.storeBytes(
        of: digits.littleEndian,
        toByteOffset: covered.lowerBound - 8,
        as: UInt64.self
      )
    }
  }

  // MARK: Reading

  /// Reads the start of the line in a range; returns `nil` if its checksum or its syntax is wrong.
  init?(_ bytes: [UInt8], _ range: Range<Int>) {
    let start = range.lowerBound
    let covered = start + Self.checksumEnd
    guard range.count <= Self.maxLength, covered < range.upperBound,
      bytes[start..<start + Self.prefix.count] == Self.prefix[...]
    else { return nil }
    let digits = Hexadecimal.eightDigits(of: CRC32C.checksum(bytes[covered..<range.upperBound]))
    // The checksum's eight digits are directly before the bytes that it covers.
    let written = unsafe bytes.withUnsafeBytes { bytes in
      unsafe bytes.loadUnaligned(fromByteOffset: covered - 8, as: UInt64.self)
    }
    guard UInt64(littleEndian: written) == digits else { return nil }
    var scanner = JSONScanner(bytes, covered..<range.upperBound)
    guard scanner.skip(#"","b":"#), let firstUnsynced = scanner.readSequenceNumber(),
      scanner.skip(#","s":"#), let sequence = scanner.readSequenceNumber(), scanner.skip(",")
    else { return nil }
    self.firstUnsynced = firstUnsynced
    self.sequence = sequence
    isContinued = scanner.skip(Self.continuation)
    body = scanner.position..<range.upperBound
  }

  /// Reads a line whose range ends with a carriage return.
  ///
  /// An editor may have added a carriage return before each line feed. It is not part of the line.
  init?(beforeReturnIn bytes: [UInt8], _ range: Range<Int>) {
    guard !range.isEmpty, bytes[range.upperBound - 1] == 0x0D else { return nil }
    self.init(bytes, range.lowerBound..<range.upperBound - 1)
  }

  /// The description of the problem that a line ends with a carriage return.
  static var carriageReturnProblem: String { "it has a carriage return before its line feed" }

  /// Returns the line with the range of its body moved by `offset` bytes.
  func moved(by offset: Int) -> JournalLine {
    var line = self
    line.body = body.lowerBound + offset..<body.upperBound + offset
    return line
  }

  /// Reads a seal at the end of the bytes, even if it does not start at the start of a line.
  ///
  /// This finds a seal if the line feed before it is damaged. The found bytes can't be part of a
  /// payload, because a payload is followed by another brace.
  init?(sealAtEndOf bytes: [UInt8]) {
    let seal = Self.seal
    let end = bytes.count - 1
    guard bytes.last == 0x0A, bytes[..<end].suffix(seal.count).elementsEqual(seal) else {
      return nil
    }
    let envelope = bytes[..<(end - seal.count)].suffix(64)
    guard let start = envelope.lastIndex(of: UInt8(ascii: "{")) else { return nil }
    self.init(bytes, start..<end)
  }
}

/// The checksum CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4).
///
/// The algorithm is Kounavis and Berry's "slicing-by-8" (2005), which processes eight bytes per
/// step. With this algorithm, and with the C library's search for line feeds, reading 50,000 tasks
/// took 765 million instructions instead of 986 million, and 55 ms instead of 70.
enum CRC32C {
  private static let tables: [UInt32] = {
    var tables = [UInt32](repeating: 0, count: 8 * 256)
    for byte in 0..<256 {
      tables[byte] = (0..<8).reduce(UInt32(byte)) { sum, _ in
        sum & 1 == 1 ? 0x82F6_3B78 ^ sum >> 1 : sum >> 1
      }
    }
    for index in 256..<8 * 256 {
      let previous = tables[index - 256]
      tables[index] = tables[Int(previous & 0xFF)] ^ previous >> 8
    }
    return tables
  }()

  static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt32 {
    // The bounds are not checked, to save eight checks per step. They are never exceeded: each load
    // below ends within the bytes, and each of the eight tables has an entry for every value of a
    // byte.
    unsafe tables.withUnsafeBufferPointer { tables in
      unsafe bytes.withUnsafeBytes { bytes in
        var sum = ~UInt32(0)
        var index = 0
        while bytes.count - index >= 8 {
          let word = unsafe UInt64(
            littleEndian: bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
          )
          let next = word ^ UInt64(sum)
          sum = unsafe tables[0x700 + Int(next & 0xFF)] ^ tables[0x600 + Int(next >> 8 & 0xFF)]
          sum ^= unsafe tables[0x500 + Int(next >> 16 & 0xFF)]
          sum ^= unsafe tables[0x400 + Int(next >> 24 & 0xFF)]
          sum ^= unsafe tables[0x300 + Int(next >> 32 & 0xFF)]
          sum ^= unsafe tables[0x200 + Int(next >> 40 & 0xFF)]
          sum ^= unsafe tables[0x100 + Int(next >> 48 & 0xFF)] ^ tables[Int(next >> 56)]
          index += 8
        }
        while index < bytes.count {
          sum = unsafe tables[Int((sum ^ UInt32(bytes[index])) & 0xFF)] ^ sum >> 8
          index += 1
        }
        return ~sum
      }
    }
  }
}
