// The standard library's conversions between these two types are generic and not specialised. With
// them, a delay with jitter takes 1.5 µs (Swift 6.3); with the conversions here, it takes 0.2 µs.
extension Int128 {
  /// The whole part of a number that is not negative and is below 2¹²⁷.
  init(wholePart value: Double) {
    if value < 0x1p63 {
      self = Int128(Int64(value))
    } else {
      let significand = value.significandBitPattern | 1 << Double.significandBitCount
      self = Int128(significand) << (Int(value.exponent) - Double.significandBitCount)
    }
  }
}

extension Double {
  /// The number nearest to `value`, or a neighbor of the nearest.
  init(approximating value: Int128) {
    self = Double(Int64(value >> 64)) * 0x1p64 + Double(UInt64(truncatingIfNeeded: value))
  }
}
