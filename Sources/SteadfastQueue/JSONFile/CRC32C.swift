/// The checksum of a line: CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4).
///
/// Eight bytes a step, with Kounavis and Berry's "slicing-by-8" (2005).
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
    let tables = tables
    var sum = ~UInt32(0)
    var index = bytes.startIndex
    while bytes.endIndex - index >= 8 {
      let low =
        sum
        ^ (UInt32(bytes[index]) | UInt32(bytes[index + 1]) << 8
          | UInt32(bytes[index + 2]) << 16 | UInt32(bytes[index + 3]) << 24)
      sum =
        tables[0x700 + Int(low & 0xFF)] ^ tables[0x600 + Int(low >> 8 & 0xFF)]
        ^ tables[0x500 + Int(low >> 16 & 0xFF)] ^ tables[0x400 + Int(low >> 24)]
        ^ tables[0x300 + Int(bytes[index + 4])] ^ tables[0x200 + Int(bytes[index + 5])]
        ^ tables[0x100 + Int(bytes[index + 6])] ^ tables[Int(bytes[index + 7])]
      index += 8
    }
    while index < bytes.endIndex {
      sum = tables[Int((sum ^ UInt32(bytes[index])) & 0xFF)] ^ sum >> 8
      index += 1
    }
    return ~sum
  }
}
