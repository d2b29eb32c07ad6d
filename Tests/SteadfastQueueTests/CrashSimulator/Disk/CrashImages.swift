import SteadfastRetry

@testable import SteadfastQueue

/// The durable contents of a disk, and the pending operations, which a power cut may undo.
struct CrashImages {
  private(set) var durable: DiskImage
  private(set) var pending: [DiskOperation] = []

  /// Determines how many disk images are made from the pending operations.
  struct Density {
    /// The number of random positions at which each write is cut.
    var cuts: Int
    /// The number of random subsets of the pending operations.
    var subsets: Int
    /// Whether each write is cut at every byte.
    var cutsEverywhere = false
  }

  init(durable: DiskImage = DiskImage()) { self.durable = durable }

  mutating func perform(_ operation: DiskOperation, using random: inout SplitMix64) {
    switch operation {
    case .flush(let node):
      settle { $0.changedNode == node }
    case .flushFolder:
      settle(\.changesNames)
    case .failedFlush(let node):
      // A part of the writes may have reached the disk. The other writes never will.
      let reached = Int(random.next() % 3)
      pending.removeAll { operation in
        guard case .write(node, _, _) = operation else { return false }
        if reached == 1 || reached == 2 && random.next() % 2 == 0 { durable.apply(operation) }
        return true
      }
    case .create, .rename, .remove, .write, .truncate:
      pending.append(operation)
    }
  }

  private mutating func settle(_ isSettled: (DiskOperation) -> Bool) {
    for operation in pending where isSettled(operation) { durable.apply(operation) }
    pending.removeAll(where: isSettled)
  }

  /// The disk after all pending operations except the skipped ones.
  private func image(without skipped: (Int) -> Bool = { _ in false }) -> DiskImage {
    var image = durable
    for (index, operation) in pending.enumerated() where !skipped(index) { image.apply(operation) }
    return image
  }

  /// A function that makes an image, and describes what the power cut has left.
  typealias Candidate = () -> (image: DiskImage, kind: String)

  /// The images that a power cut may leave now.
  ///
  /// These are all images of each kind or, if there are too many, some of them.
  func candidates(_ density: Density, using random: inout SplitMix64) -> [Candidate] {
    var candidates: [Candidate] = [{ (durable, "nothing pending") }]
    guard !pending.isEmpty else { return candidates }
    for count in pending.indices {
      candidates.append {
        (image { $0 > count }, "the first \(count + 1) of \(pending.count) pending")
      }
    }
    if pending.count > 1 {
      for index in pending.indices {
        candidates.append { (image { $0 == index }, "all pending but number \(index + 1)") }
        candidates.append { (image { $0 != index }, "of the pending only number \(index + 1)") }
      }
    }
    for index in pending.indices {
      guard case .write(_, _, let bytes) = pending[index] else { continue }
      forEachTear(of: bytes, density, using: &random) { lost, filler, kind in
        for isLast in [true, false] where isLast || index + 1 < pending.count {
          candidates.append {
            (
              image(torn: index, isLast: isLast, without: lost, filler),
              "write \(index + 1) of \(pending.count) pending \(kind) \(lost)"
            )
          }
        }
      }
    }
    for _ in 0..<density.subsets {
      let kept = pending.indices.map { _ in random.next() % 2 == 0 }
      candidates.append { (image { !kept[$0] }, "a random part of what is pending") }
    }
    return candidates
  }

  /// The disk after the operations before a write, a part of the write and, unless `isLast`, the
  /// operations after the write.
  private func image(
    torn index: Int,
    isLast: Bool,
    without lost: Range<Int>,
    _ filler: Filler
  ) -> DiskImage {
    guard case .write(let node, let offset, let bytes) = pending[index] else { return durable }
    var image = image { $0 >= index }
    put(bytes, without: lost, filler, at: offset, in: node, of: &image)
    if !isLast { for later in pending[(index + 1)...] { image.apply(later) } }
    return image
  }

  // MARK: Torn writes

  /// What a file contains instead of lost bytes after its old end.
  enum Filler {
    case zeros, garbage(UInt64)
    /// Nothing: the file ends before the lost bytes.
    case nothing
  }

  private func forEachTear(
    of bytes: [UInt8],
    _ density: Density,
    using random: inout SplitMix64,
    _ body: (_ lost: Range<Int>, _ filler: Filler, _ kind: StaticString) -> Void
  ) {
    for cut in cuts(of: bytes, density, using: &random) {
      body(cut..<bytes.count, .nothing, "cut at")
      body(cut..<bytes.count, .zeros, "zeroed in")
      body(cut..<bytes.count, .garbage(random.next()), "garbage in")
      body(0..<cut, .zeros, "zeroed in")
      let end = min(bytes.count, cut + 1 + Int(random.next() % 64))
      body(cut..<end, .zeros, "zeroed in")
      body(cut..<end, .garbage(random.next()), "garbage in")
    }
  }

  private func cuts(
    of bytes: [UInt8],
    _ density: Density,
    using random: inout SplitMix64
  ) -> [Int] {
    guard bytes.count > 1 else { return [] }
    if density.cutsEverywhere { return Array(1..<bytes.count) }
    // A reader is most likely to fail between lines, before and after the line feed.
    let lineEnds = bytes.indices.filter { bytes[$0] == 0x0A }
    let nearby = lineEnds.suffix(8).flatMap { [$0, $0 + 1] }.filter { $0 > 0 && $0 < bytes.count }
    return nearby + (0..<density.cuts).map { _ in 1 + Int(random.next() % UInt64(bytes.count - 1)) }
  }

  /// Writes bytes, some of which are lost.
  ///
  /// Where bytes are lost, the durable bytes stay unchanged. After the end of the durable bytes,
  /// the filler replaces lost bytes.
  private func put(
    _ bytes: [UInt8],
    without lost: Range<Int>,
    _ filler: Filler,
    at offset: Int,
    in node: Int,
    of image: inout DiskImage
  ) {
    let old = image.size(of: node)
    var torn = bytes
    for index in lost {
      let place = offset + index
      switch filler {
      case _ where place < old: torn[index] = image.contents[node][place]
      case .zeros: torn[index] = 0
      case .garbage(let seed):
        torn[index] = UInt8(
          truncatingIfNeeded: (seed ^ UInt64(index)) &* 0x9E37_79B9_7F4A_7C15 >> 40
        )
      case .nothing:
        return image.put(torn[..<index], at: offset, in: node)
      }
    }
    image.put(torn[...], at: offset, in: node)
  }
}
