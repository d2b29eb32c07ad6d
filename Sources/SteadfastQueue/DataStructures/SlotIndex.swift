/// Finds the slots of a ``Slab`` by the IDs of the tasks in them.
///
/// It is a hash table with open addressing and linear probing, and holds no IDs. A bucket has eight
/// bytes: half of the ID's hash, and the slot. The owner of the elements tells whether a slot
/// belongs to an ID.
///
/// The hash combines the two halves of a product by XOR. The factors are the ID's own halves, each
/// mixed with a random number that is new in each process. So the writer of a file can't know which
/// IDs would make the table slow.
///
/// A table that grows moves all its buckets, during the call that makes it grow. So a large index
/// is many small tables: the IDs are spread among them, and each grows by itself. A single table
/// of 1,500,000 tasks paused one call for 0.24 to 0.45 s; the small ones pause for 3 ms at most.
struct SlotIndex: Sendable {
  /// The number of shards of a large index; the upper eight bits of a hash choose the shard.
  private static let manyShards = 256
  /// The largest number of slots in a single shard; so no more are moved at once.
  private static let maxCountOfOneShard = 12 << 10

  private static let seeds = (UInt64.random(in: 0 ... .max), UInt64.random(in: 0 ... .max))

  private let seeds = Self.seeds
  private var shards = [Shard()]
  private(set) var count = 0

  /// All slots, in no particular order.
  var all: some Sequence<Int> { shards.lazy.flatMap(\.slots) }

  /// The number of slots in each shard.
  var shardCounts: [Int] { shards.map(\.count) }

  /// Returns the slot of an ID.
  ///
  /// `isRight` tells it from the slots of other IDs with the same half of a hash.
  func slot(of id: some SlotKey, where isRight: (Int) -> Bool) -> Int? {
    let hash = hash(of: id)
    return shards[shard(of: hash)].slot(with: hash, where: isRight)
  }

  /// Makes room for `count` IDs, including those that are there.
  mutating func reserveCapacity(_ count: Int) {
    if count > Self.maxCountOfOneShard { spread() }
    // The shards are filled nearly evenly.
    for shard in shards.indices { shards[shard].reserveCapacity(count / shards.count) }
  }

  /// Adds a slot for an ID that has none.
  mutating func insert(_ slot: Int, for id: some SlotKey) {
    insert(slot, hash(of: id))
  }

  /// Returns the slot of an ID; if it has none, adds the one that `make` returns.
  mutating func slot(
    of id: some SlotKey,
    where isRight: (Int) -> Bool,
    orInsert make: () -> Int
  ) -> Int {
    let hash = hash(of: id)
    if let slot = shards[shard(of: hash)].slot(with: hash, where: isRight) { return slot }
    let slot = make()
    insert(slot, hash)
    return slot
  }

  private mutating func insert(_ slot: Int, _ hash: UInt32) {
    if count == Self.maxCountOfOneShard { spread() }
    shards[shard(of: hash)].insert(Bucket(slot: slot, hash: hash))
    count += 1
  }

  /// Removes the slot of an ID, which must be there.
  mutating func remove(_ slot: Int, of id: some SlotKey) {
    let hash = hash(of: id)
    shards[shard(of: hash)].remove(Bucket(slot: slot, hash: hash))
    count -= 1
  }

  private func shard(of hash: UInt32) -> Int { shards.count == 1 ? 0 : Int(hash >> 24) }

  private mutating func spread() {
    guard shards.count == 1 else { return }
    let one = shards[0]
    shards = Array(repeating: Shard(), count: Self.manyShards)
    for bucket in one.taken { shards[shard(of: bucket.hash)].insert(bucket) }
  }

  private func hash(of id: some SlotKey) -> UInt32 {
    let product = (id.high ^ seeds.0).multipliedFullWidth(by: id.low ^ seeds.1)
    return UInt32(truncatingIfNeeded: (product.high ^ product.low) >> 32)
  }
}

extension SlotIndex {
  private struct Bucket {
    /// The slot's number plus one in the lower half, and half of the ID's hash in the upper half.
    ///
    /// It is 0 if the bucket is free.
    let bits: UInt64

    static let free = Bucket(bits: 0)

    private init(bits: UInt64) { self.bits = bits }

    init(slot: Int, hash: UInt32) { bits = UInt64(hash) << 32 | UInt64(UInt32(slot + 1)) }

    var isFree: Bool { bits == 0 }
    var slot: Int { Int(UInt32(truncatingIfNeeded: bits)) - 1 }
    var hash: UInt32 { UInt32(truncatingIfNeeded: bits >> 32) }
  }

  private struct Shard {
    private static let minBucketCount = 16

    /// The buckets: none before the first insertion, then a power of two.
    ///
    /// At most three quarters of them are taken.
    private var buckets: [Bucket] = []
    private(set) var count = 0

    var taken: some Sequence<Bucket> { buckets.lazy.filter { !$0.isFree } }

    var slots: some Sequence<Int> { taken.lazy.map(\.slot) }

    func slot(with hash: UInt32, where isRight: (Int) -> Bool) -> Int? {
      guard count > 0 else { return nil }
      var position = home(of: hash)
      while !buckets[position].isFree {
        if buckets[position].hash == hash, isRight(buckets[position].slot) {
          return buckets[position].slot
        }
        position = (position + 1) & mask
      }
      return nil
    }

    mutating func reserveCapacity(_ count: Int) {
      var needed = max(buckets.count, Self.minBucketCount)
      while count * 4 > needed * 3 { needed *= 2 }
      if needed > buckets.count { grow(to: needed) }
    }

    mutating func insert(_ bucket: Bucket) {
      if (count + 1) * 4 > buckets.count * 3 {
        grow(to: max(buckets.count * 2, Self.minBucketCount))
      }
      place(bucket)
      count += 1
    }

    mutating func remove(_ bucket: Bucket) {
      precondition(count > 0, "slot \(bucket.slot) was not found by its ID")
      var hole = home(of: bucket.hash)
      while buckets[hole].bits != bucket.bits {
        precondition(!buckets[hole].isFree, "slot \(bucket.slot) was not found by its ID")
        hole = (hole + 1) & mask
      }
      // The buckets behind close up, but none moves in front of the bucket that its hash asks for.
      var position = (hole + 1) & mask
      while !buckets[position].isFree {
        let distance = (position - home(of: buckets[position].hash)) & mask
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

    private func home(of hash: UInt32) -> Int { Int(hash) & mask }

    private mutating func place(_ bucket: Bucket) {
      var position = home(of: bucket.hash)
      while !buckets[position].isFree { position = (position + 1) & mask }
      buckets[position] = bucket
    }

    private mutating func grow(to bucketCount: Int) {
      let old = taken
      buckets = [Bucket](repeating: .free, count: bucketCount)
      for bucket in old { place(bucket) }
    }
  }
}

/// An ID of 128 bits, whose values need not be spread evenly.
protocol SlotKey {
  /// The first 64 bits.
  var high: UInt64 { get }
  /// The last 64 bits.
  var low: UInt64 { get }
}
