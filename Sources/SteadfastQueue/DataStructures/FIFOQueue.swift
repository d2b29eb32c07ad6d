/// A first-in, first-out queue: a ring buffer whose operations take amortized constant time.
///
/// The buffer doubles when it is full, and never shrinks. Removing an element releases the element
/// at once. The type is inlinable because the hottest loop of virtual time, which is in another
/// module, uses it. The compiler specializes the type in that module only if the type is also
/// usable from inline code.
@usableFromInline package struct FIFOQueue<Element> {
  /// The ring buffer: the first element is at index `head`, and index 0 follows the last index.
  ///
  /// The buffer's size is 0 or a power of two.
  @usableFromInline var buffer: [Element?] = []
  @usableFromInline var head = 0
  @usableFromInline package private(set) var count = 0

  @inlinable package init() {}

  /// Makes an empty queue with at least this capacity.
  package init(minimumCapacity: Int) {
    var capacity = 1
    while capacity < minimumCapacity { capacity *= 2 }
    buffer = Array(repeating: nil, count: capacity)
  }

  @inlinable package var isEmpty: Bool { count == 0 }

  /// The number of elements that the queue can store without growing.
  package var capacity: Int { buffer.count }

  @inlinable package var first: Element? { count == 0 ? nil : buffer[head] }

  @inlinable package mutating func append(_ element: Element) {
    if count == buffer.count { grow() }
    buffer[bufferIndex(atOffset: count)] = element
    count += 1
  }

  @inlinable package mutating func popFirst() -> Element? {
    guard count > 0 else { return nil }
    let first = buffer[head].take()
    head = bufferIndex(atOffset: 1)
    count -= 1
    return first
  }

  /// Swaps the first element with the one that is `index` elements behind it.
  @inlinable package mutating func bringToFront(_ index: Int) {
    precondition(index < count, "the queue has fewer elements")
    buffer.swapAt(head, bufferIndex(atOffset: index))
  }

  /// Returns the index in the buffer of the element that is `offset` elements behind the first one.
  @inlinable func bufferIndex(atOffset offset: Int) -> Int { (head + offset) & (buffer.count - 1) }

  @inlinable mutating func grow() {
    var larger: [Element?] = []
    larger.reserveCapacity(max(4, 2 * count))
    larger += buffer[head...]
    larger += buffer[..<head]
    larger += repeatElement(nil, count: max(4, 2 * count) - count)
    buffer = larger
    head = 0
  }
}

extension FIFOQueue: Sendable where Element: Sendable {}
