/// The checksum of a line: CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4).
///
/// It takes eight bytes a step, by Kounavis and Berry's "slicing-by-8" (2005). With this, and a search
/// for line feeds by the C library, reading 50,000 tasks took 765 million instructions in place of
/// 986 million, and 55 ms in place of 70.
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
    // The loads are unchecked, to save eight checks a step: each load below ends within the bytes,
    // and each of the eight tables has an entry for every value of a byte.
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
