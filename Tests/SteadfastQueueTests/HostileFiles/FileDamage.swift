import SteadfastRetry

@testable import SteadfastQueue

/// Damages files at random, without correcting checksums.
struct FileDamage {
  private var random: SplitMix64

  init(seed: UInt64) { random = SplitMix64(seed: seed) }

  mutating func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

  /// Sequences of bytes to insert into files.
  private static let rubbish: [[UInt8]] = [
    [0], [0x0A], [0x0D, 0x0A], [0x0A, 0x0A], [0xEF, 0xBB, 0xBF], [0xFF, 0xFE], [0xC0, 0x80],
    [0xED, 0xA0, 0x80], [0xF5], Array("\\ud800".utf8), Array("\"".utf8), Array("}".utf8),
    Array(",".utf8), Array("1e999".utf8), Array("-".utf8), Array("0".utf8),
    Array(repeating: UInt8(ascii: "["), count: 100), Array(repeating: 0, count: 512),
    Array(#"{"c":"00000000","b":0,"s":0,"k":"seal"}"#.utf8) + [0x0A],
  ]

  /// Returns the bytes of a file with random damage, often at several positions.
  mutating func damaged(_ file: RealFile) -> [UInt8] {
    var bytes = file.bytes
    for _ in 0..<[1, 1, 1, 2, 4][pick(5)] {
      if pick(3) == 0 {
        bytes = rearranged(bytes)
      } else {
        change(&bytes)
      }
      if bytes.isEmpty { return bytes }
    }
    return bytes
  }

  /// Changes bytes at a random position, most often in the last lines.
  mutating func change(_ bytes: inout [UInt8]) {
    let offset =
      pick(2) == 0 ? pick(bytes.count) : bytes.count - 1 - pick(min(bytes.count, 600))
    let end = min(bytes.count, offset + 1 + (pick(2) == 0 ? 0 : pick(300)))
    switch pick(6) {
    case 0: bytes[offset] ^= 1 << UInt8(pick(8))
    case 1: bytes[offset] = UInt8(pick(256))
    case 2: bytes.removeSubrange(offset...)
    case 3: bytes.removeSubrange(offset..<end)
    case 4: bytes.insert(contentsOf: Self.rubbish[pick(Self.rubbish.count)], at: offset)
    default:
      let byte = [0, 0xFF, 0x20, 0x0A][pick(4)] as UInt8
      for index in offset..<end { bytes[index] = byte }
    }
  }

  /// Drops, doubles, swaps or moves whole lines, or changes all line endings.
  mutating func rearranged(_ bytes: [UInt8]) -> [UInt8] {
    var lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false).map { Array($0) }
    if lines.last?.isEmpty == true { lines.removeLast() }
    guard !lines.isEmpty else { return bytes }
    let index = pick(lines.count)
    switch pick(6) {
    case 0: lines.remove(at: index)
    case 1: lines.insert(lines[index], at: index)
    case 2: lines.swapAt(index, pick(lines.count))
    case 3:
      let line = lines.remove(at: index)
      lines.insert(line, at: pick(lines.count + 1))
    case 4: lines.removeSubrange(index...)
    default: return lines.flatMap { $0 + [0x0D, 0x0A] }
    }
    return lines.flatMap { $0 + [0x0A] }
  }
}
