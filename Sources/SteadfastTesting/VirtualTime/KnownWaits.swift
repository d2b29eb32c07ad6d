import SteadfastQueue

/// The waits that are under way and can be told, in the order in which they began.
struct KnownWaits {
  private var waits: [(number: UInt64, wait: KnownWait)] = []
  private var lastNumber: UInt64 = 0

  var all: [KnownWait] { waits.map(\.wait) }

  mutating func add(_ wait: KnownWait) -> UInt64 {
    lastNumber += 1
    waits.append((lastNumber, wait))
    return lastNumber
  }

  mutating func remove(_ number: UInt64) {
    // Mostly the latest ones end first.
    guard let index = waits.lastIndex(where: { $0.number == number }) else { return }
    waits.remove(at: index)
  }
}
