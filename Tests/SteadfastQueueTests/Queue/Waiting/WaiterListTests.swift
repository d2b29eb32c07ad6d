import Testing

@testable import SteadfastQueue

@Suite struct WaiterListTests {
  private func makeList(keys: some Sequence<UInt64>) -> WaiterList<UInt64> {
    var list = WaiterList<UInt64>()
    for key in keys { list.add(key, key: key) }
    return list
  }

  @Test func `each waiter is removed once, by key or from the end`() {
    var list = makeList(keys: 1...6)
    #expect(list.remove(key: 2) == 2)
    #expect(list.remove(key: 2) == nil)
    #expect(list.remove(key: 6) == 6)
    #expect(list.remove(key: 7) == nil)
    #expect(list.popLast() == 5)
    #expect(list.takeAll() == [1, 3, 4])
    #expect(list.isEmpty)
    #expect(list.popLast() == nil)
    #expect(list.takeAll() == [])
  }

  @Test func `waiters are sorted by key even if they are added out of order`() {
    var list = makeList(keys: [1, 2, 5, 3, 4])
    #expect(list.remove(key: 5) == 5)
    #expect(list.remove(key: 3) == 3)
    #expect(list.takeAll() == [1, 2, 4])
  }

  @Test func `the first waiters are removed in order, even if others leave in between`() {
    var list = makeList(keys: 1...6)
    #expect(list.popFirst() == 1)
    #expect(list.remove(key: 2) == 2)
    #expect(list.popFirst() == 3)
    #expect(list.popLast() == 6)
    #expect(list.popFirst() == 4)
    // A waiter with a lower key is added after one with a higher key.
    #expect(list.popFirst() == 5)
    list.add(8, key: 8)
    list.add(7, key: 7)
    #expect(list.popFirst() == 7)
    #expect(list.popFirst() == 8)
    #expect(list.popFirst() == nil)
    #expect(list.isEmpty)
  }

  @Test func `removing the first waiter takes few steps even if other waiters join and leave`() {
    let count: UInt64 = 40_000
    var list = makeList(keys: 0..<count)
    for index in 0..<count {
      #expect(list.popFirst() == index)
      list.add(count + index, key: count + index)
      #expect(list.remove(key: count + index) == count + index)
    }
    #expect(list.isEmpty)
    #expect(list.moveCount <= 8 * Int(count))
  }

  @Test func `the list is empty after all waiters left`() {
    var list = makeList(keys: 1...3)
    for key in UInt64(1)...3 { _ = list.remove(key: key) }
    #expect(list.isEmpty)
    list.add(4, key: 4)
    #expect(!list.isEmpty)
    #expect(list.popLast() == 4)
  }

  @Test func `the list isn't empty while a waiter precedes removed waiters`() {
    var list = makeList(keys: 1...3)
    #expect(list.remove(key: 3) == 3)
    #expect(list.popLast() == 2)
    #expect(!list.isEmpty)
    #expect(list.popLast() == 1)
    #expect(list.isEmpty)
  }

  @Test(arguments: [Order.forwards, .backwards, .mixed])
  func `each removal takes few steps when all waiters leave one by one`(order: Order) {
    let count: UInt64 = 40_000
    var list = makeList(keys: 0..<count)
    for index in 0..<count {
      let key =
        switch order {
        case .forwards: index
        case .backwards: count - 1 - index
        // The factor is coprime with the count, so each key occurs once.
        case .mixed: index * 7_919 % count
        }
      #expect(list.remove(key: key) == key)
    }
    #expect(list.isEmpty)
    #expect(list.moveCount <= 4 * Int(count))
  }

  enum Order { case forwards, backwards, mixed }
}
