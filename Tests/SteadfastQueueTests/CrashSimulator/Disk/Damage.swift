import SteadfastRetry

/// Ways in which lines that were stored long ago can be damaged.
enum Damage: String, CaseIterable {
  case flippedBit = "a bit flipped"
  case lostLine = "a line lost"
  case doubledLine = "a line doubled"
  case swappedLines = "two lines swapped"
  case zeroedBytes = "bytes zeroed"

  /// Returns the bytes with damage in the first `count` bytes, which are whole lines.
  ///
  /// The last line feed is preserved: without the line feed, the next line would be damaged too.
  ///
  /// - Returns: `nil` if these lines can't be damaged in this way.
  func applied(
    to bytes: [UInt8],
    first count: Int,
    using random: inout SplitMix64
  ) -> [UInt8]? {
    guard count > 0 else { return nil }
    var damaged = bytes
    let place = Int(random.next() % UInt64(count - 1))
    let lines = bytes[..<count].split(separator: 0x0A).map { $0.startIndex..<$0.endIndex + 1 }
    let line = Int(random.next() % UInt64(lines.count))
    switch self {
    case .flippedBit: damaged[place] ^= 1 << UInt8(random.next() % 8)
    case .lostLine: damaged.removeSubrange(lines[line])
    case .doubledLine: damaged.insert(contentsOf: bytes[lines[line]], at: lines[line].upperBound)
    case .swappedLines:
      guard line + 1 < lines.count else { return nil }
      let both = lines[line].lowerBound..<lines[line + 1].upperBound
      damaged.replaceSubrange(both, with: bytes[lines[line + 1]] + bytes[lines[line]])
    case .zeroedBytes:
      for index in place..<min(count - 1, place + 64) { damaged[index] = 0 }
    }
    return damaged
  }
}
