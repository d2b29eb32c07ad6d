/// A line of elements that leave as they came, each in amortized constant time.
struct FirstInFirstOut<Element> {
  private var elements: [Element?] = []
  private var head = 0

  var count: Int { elements.count - head }
  var isEmpty: Bool { count == 0 }

  mutating func append(_ element: Element) { elements.append(element) }

  /// Exchanges the first element and the one this far behind it.
  mutating func bringToFront(_ index: Int) { elements.swapAt(head, head + index) }

  mutating func popFirst() -> Element? {
    guard head < elements.count else { return nil }
    let first = elements[head].take()
    head += 1
    // Half of the storage is spent by then, so each element is moved at most once on average.
    if head * 2 >= elements.count {
      elements.removeFirst(head)
      head = 0
    }
    return first
  }
}
