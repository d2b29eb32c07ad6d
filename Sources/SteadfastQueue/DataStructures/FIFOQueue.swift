/// A first-in, first-out queue: a ring whose operations take amortized constant time.
///
/// The ring doubles when it is full, and never shrinks. A place whose element was removed holds
/// nothing. It is inlinable, because the virtual time of another module has its hottest loop here.
/// The compiler specializes it there only if it is usable from inline code, too.
@usableFromInline package struct FIFOQueue<Element> {
  /// The elements: the first one is at `head`, and place 0 follows the last place.
  ///
  /// The number of places is 0 or a power of two.
  @usableFromInline var places: [Element?] = []
  @usableFromInline var head = 0
  @usableFromInline package private(set) var count = 0

  @inlinable package init() {}

  /// Makes a queue with room for this many elements.
  package init(minimumCapacity: Int) {
    var capacity = 1
    while capacity < minimumCapacity { capacity *= 2 }
    places = Array(repeating: nil, count: capacity)
  }

  @inlinable package var isEmpty: Bool { count == 0 }

  /// The number of elements that it has room for now.
  package var capacity: Int { places.count }

  @inlinable package var first: Element? { count == 0 ? nil : places[head] }

  @inlinable package mutating func append(_ element: Element) {
    if count == places.count { grow() }
    places[place(count)] = element
    count += 1
  }

  @inlinable package mutating func popFirst() -> Element? {
    guard count > 0 else { return nil }
    let first = places[head].take()
    head = place(1)
    count -= 1
    return first
  }

  /// Exchanges the first element with the one that is `index` places behind it.
  @inlinable package mutating func bringToFront(_ index: Int) {
    precondition(index < count, "the queue has fewer elements")
    places.swapAt(head, place(index))
  }

  /// Returns the place that is `offset` places behind the first element.
  @inlinable func place(_ offset: Int) -> Int { (head + offset) & (places.count - 1) }

  @inlinable mutating func grow() {
    var larger: [Element?] = []
    larger.reserveCapacity(max(4, 2 * count))
    larger += places[head...]
    larger += places[..<head]
    larger += repeatElement(nil, count: max(4, 2 * count) - count)
    places = larger
    head = 0
  }
}

extension FIFOQueue: Sendable where Element: Sendable {}
