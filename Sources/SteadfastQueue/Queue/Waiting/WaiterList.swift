/// A value that holds waiters in order of arrival, each of which may leave at any time.
///
/// A waiter that leaves stays as a gap until there are as many gaps as waiters. So when many
/// waiters leave one by one, each costs only a few steps.
struct WaiterList<Waiter> {
  private var list: [(key: UInt64, waiter: Waiter?)] = []
  private var gapCount = 0
  /// Before this index there are gaps only.
  private var start = 0
  /// The number of entries that were moved to close gaps.
  private(set) var moveCount = 0

  var isEmpty: Bool { list.count == gapCount }

  /// Adds a waiter; keys are drawn in order, and may be added a little out of order.
  mutating func add(_ waiter: Waiter, key: UInt64) {
    var index = list.endIndex
    while index > 0, list[index - 1].key > key { index -= 1 }
    list.insert((key, waiter), at: index)
    start = min(start, index)
  }

  /// Removes and returns the waiter with a key, if it is still there.
  mutating func remove(key: UInt64) -> Waiter? {
    var range = list.indices
    while !range.isEmpty {
      let middle = range.lowerBound + range.count / 2
      if list[middle].key == key {
        guard let waiter = list[middle].waiter else { return nil }
        list[middle].waiter = nil
        gapCount += 1
        closeGaps()
        return waiter
      }
      range = list[middle].key < key ? middle + 1..<range.upperBound : range.lowerBound..<middle
    }
    return nil
  }

  /// Removes and returns the waiter that came first.
  mutating func popFirst() -> Waiter? {
    while start < list.endIndex {
      let index = start
      start += 1
      guard let waiter = list[index].waiter else { continue }
      list[index].waiter = nil
      gapCount += 1
      closeGaps()
      return waiter
    }
    return nil
  }

  /// Removes and returns the waiter that came last.
  mutating func popLast() -> Waiter? {
    while let last = list.popLast() {
      if let waiter = last.waiter { return waiter }
      gapCount -= 1
    }
    return nil
  }

  /// Removes and returns all waiters, in order of arrival.
  mutating func takeAll() -> [Waiter] {
    defer {
      list = []
      gapCount = 0
      start = 0
    }
    return list.compactMap(\.waiter)
  }

  private mutating func closeGaps() {
    guard gapCount * 2 > list.count else { return }
    moveCount += list.count
    list.removeAll { $0.waiter == nil }
    gapCount = 0
    start = 0
  }
}

extension WaiterList: Sendable where Waiter: Sendable {}
