extension Sequence<UInt8> {
  /// A hash of the bytes that is the same in every process.
  ///
  /// It is the 64-bit FNV-1a hash, with its bits mixed by the finalizer of MurmurHash3.
  var stableHash: UInt64 {
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in self { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
    hash = (hash ^ hash >> 33) &* 0xFF51_AFD7_ED55_8CCD
    hash = (hash ^ hash >> 33) &* 0xC4CE_B9FE_1A85_EC53
    return hash ^ hash >> 33
  }
}
