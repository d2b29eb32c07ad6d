/// A first-in, first-out queue: a ring whose operations take amortized constant time.
///
/// The ring doubles when it is full, and never shrinks. Removing an element clears its place. The
/// type is inlinable because another module's virtual time has its hottest loop here. The compiler
/// specializes it there only if it is also usable from inline code.
@usableFromInline package struct FIFOQueue<Element> {
  /// The elements: the first one is at `head`, and place 0 follows the last place.
  ///
  /// The number of places is 0 or a power of two.
  @usableFromInline var places: [Element?] = []
  @usableFromInline var head = 0
  @usableFromInline package private(set) var count = 0

  @inlinable package init() {}

  /// Makes an empty queue with at least this capacity.
  package init(minimumCapacity: Int) {
    var capacity = 1
    while capacity < minimumCapacity { capacity *= 2 }
    places = Array(repeating: nil, count: capacity)
  }

  @inlinable package var isEmpty: Bool { count == 0 }

  /// The number of elements that fit without growing.
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

  /// Swaps the first element with the one `index` places behind it.
  @inlinable package mutating func bringToFront(_ index: Int) {
    precondition(index < count, "the queue has fewer elements")
    places.swapAt(head, place(index))
  }

  /// Returns the place of the element `offset` places behind the first.
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
