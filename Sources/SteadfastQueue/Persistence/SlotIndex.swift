/// Finds the slots of a ``Slab`` by the identities of the tasks in them.
///
/// A hash table with open addressing and linear probing that holds no identities: a bucket is half of
/// the identity's hash and the slot, eight bytes. Whoever has the elements tells whether a slot is
/// that of an identity. The hash is the two halves of the product of the identity's own halves, each
/// mixed with a number that is drawn anew for each process: which identities a file would have to
/// hold to make it slow, its writer can't know.
struct SlotIndex: Sendable {
  private struct Bucket {
    /// The slot's number plus one below, half of the hash above; 0 if it is free.
    var bits: UInt64

    static let free = Bucket(bits: 0)

    init(bits: UInt64) { self.bits = bits }

    init(slot: Int, hash: UInt32) { bits = UInt64(hash) << 32 | UInt64(UInt32(slot + 1)) }

    var isFree: Bool { bits == 0 }
    var slot: Int { Int(UInt32(truncatingIfNeeded: bits)) - 1 }
    var hash: UInt32 { UInt32(truncatingIfNeeded: bits >> 32) }
  }

  private static let seeds = (UInt64.random(in: 0 ... .max), UInt64.random(in: 0 ... .max))

  private let seeds = Self.seeds
  /// As many as a power of two, at most three quarters of them taken.
  private var buckets = [Bucket](repeating: .free, count: 16)
  private(set) var count = 0

  /// All slots, in no order.
  var all: some Sequence<Int> { buckets.lazy.filter { !$0.isFree }.map(\.slot) }

  /// The slot of an identity, as `isRight` tells it from those with the same half of a hash.
  func slot(of id: TaskID, where isRight: (Int) -> Bool) -> Int? {
    let hash = hash(of: id)
    var position = Int(hash) & mask
    while !buckets[position].isFree {
      if buckets[position].hash == hash, isRight(buckets[position].slot) {
        return buckets[position].slot
      }
      position = (position + 1) & mask
    }
    return nil
  }

  /// Makes room for so many identities, those included that are there.
  mutating func reserveCapacity(_ count: Int) {
    var needed = buckets.count
    while count * 4 > needed * 3 { needed *= 2 }
    if needed > buckets.count { grow(to: needed) }
  }

  /// Adds a slot for an identity that has none.
  mutating func insert(_ slot: Int, for id: TaskID) {
    if (count + 1) * 4 > buckets.count * 3 { grow(to: buckets.count * 2) }
    place(Bucket(slot: slot, hash: hash(of: id)))
    count += 1
  }

  /// Removes the slot of an identity.
  mutating func remove(_ slot: Int, of id: TaskID) {
    let bucket = Bucket(slot: slot, hash: hash(of: id))
    var hole = Int(bucket.hash) & mask
    while buckets[hole].bits != bucket.bits {
      precondition(!buckets[hole].isFree, "slot \(slot) was not found by the identity \(id)")
      hole = (hole + 1) & mask
    }
    // Those behind close up, as far as each is not before the bucket that its hash asks for.
    var position = (hole + 1) & mask
    while !buckets[position].isFree {
      let distance = (position - Int(buckets[position].hash)) & mask
      if distance >= (position - hole) & mask {
        buckets[hole] = buckets[position]
        hole = position
      }
      position = (position + 1) & mask
    }
    buckets[hole] = .free
    count -= 1
  }

  private var mask: Int { buckets.count - 1 }

  private func hash(of id: TaskID) -> UInt32 {
    let product = (id.high ^ seeds.0).multipliedFullWidth(by: id.low ^ seeds.1)
    return UInt32(truncatingIfNeeded: (product.high ^ product.low) >> 32)
  }

  private mutating func place(_ bucket: Bucket) {
    var position = Int(bucket.hash) & mask
    while !buckets[position].isFree { position = (position + 1) & mask }
    buckets[position] = bucket
  }

  private mutating func grow(to bucketCount: Int) {
    let old = buckets
    buckets = [Bucket](repeating: .free, count: bucketCount)
    for bucket in old where !bucket.isFree { place(bucket) }
  }
}
