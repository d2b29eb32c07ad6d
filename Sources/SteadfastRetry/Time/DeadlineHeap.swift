// The heap is inlinable, so that the compiler specializes it in other modules: each sleep on a
// clock uses it. That requires that the type is usable from inline code. The types are frozen
// because, in a module that may evolve, only frozen types may have inlinable initializers.

/// A priority queue, sorted by deadline, then by the order of insertion, from which any element can
/// be removed.
///
/// The queue is a binary heap of small keys. The elements stay in slots that contain the positions
/// of their keys, so inserting, popping and removing each take O(log n). Slots are reused, but
/// tickets are not: after an element is removed, its ticket finds no element.
@frozen @usableFromInline package struct DeadlineHeap<Element, Deadline: Comparable> {
  /// Identifies one insertion.
  @frozen @usableFromInline package struct Ticket: Hashable, Sendable {
    @usableFromInline let slot: Int
    @usableFromInline let arrival: UInt64

    @inlinable init(slot: Int, arrival: UInt64) {
      self.slot = slot
      self.arrival = arrival
    }
  }

  @frozen @usableFromInline struct Key {
    @usableFromInline let deadline: Deadline
    @usableFromInline let ticket: Ticket

    @inlinable init(deadline: Deadline, ticket: Ticket) {
      self.deadline = deadline
      self.ticket = ticket
    }

    @inlinable func precedes(_ other: Key) -> Bool {
      deadline == other.deadline
        ? ticket.arrival < other.ticket.arrival
        : deadline < other.deadline
    }
  }

  @frozen @usableFromInline struct Slot {
    @usableFromInline var position: Int
    @usableFromInline var element: Element?

    @inlinable init(position: Int, element: Element?) {
      self.position = position
      self.element = element
    }
  }

  @usableFromInline var keys: [Key] = []
  @usableFromInline var slots: [Slot] = []
  @usableFromInline var freeSlots: [Int] = []
  @usableFromInline var arrivals: UInt64 = 0

  /// Makes an empty heap.
  @inlinable package init() {}

  @inlinable package var count: Int { keys.count }

  /// The earliest deadline; `nil` if the heap is empty.
  @inlinable package var firstDeadline: Deadline? { keys.first?.deadline }

  /// All elements with their deadlines, in the order in which they would be popped; this takes O(n
  /// log n).
  @inlinable package var sorted: [(deadline: Deadline, element: Element)] {
    keys.sorted { $0.precedes($1) }.compactMap { key in
      slots[key.ticket.slot].element.map { (key.deadline, $0) }
    }
  }

  /// Adds an element, and returns a ticket with which it can be removed.
  @inlinable package mutating func insert(_ element: Element, deadline: Deadline) -> Ticket {
    let slot: Int
    if let free = freeSlots.popLast() {
      slot = free
      slots[slot].element = element
    } else {
      slot = slots.count
      slots.append(Slot(position: keys.count, element: element))
    }
    let ticket = Ticket(slot: slot, arrival: arrivals)
    arrivals += 1
    keys.append(Key(deadline: deadline, ticket: ticket))
    siftUp(from: keys.count - 1)
    return ticket
  }

  /// Removes and returns the earliest element, if its deadline is not after `limit`.
  @inlinable package mutating func popFirst(
    through limit: Deadline
  ) -> (deadline: Deadline, element: Element)? {
    guard let first = keys.first, first.deadline <= limit, let element = remove(first.ticket)
    else { return nil }
    return (first.deadline, element)
  }

  /// Removes and returns the element of this ticket; returns `nil` if the element was removed
  /// before.
  @inlinable package mutating func remove(_ ticket: Ticket) -> Element? {
    let position = slots[ticket.slot].position
    guard position < keys.count, keys[position].ticket == ticket else { return nil }
    let element = slots[ticket.slot].element.take()
    freeSlots.append(ticket.slot)
    let last = keys.removeLast()
    if position < keys.count {
      place(last, at: position)
      siftDown(from: position)
      siftUp(from: position)
    }
    return element
  }

  @inlinable mutating func place(_ key: Key, at position: Int) {
    keys[position] = key
    slots[key.ticket.slot].position = position
  }

  @inlinable mutating func siftUp(from start: Int) {
    let key = keys[start]
    var position = start
    while position > 0 {
      let parent = (position - 1) / 2
      guard key.precedes(keys[parent]) else { break }
      place(keys[parent], at: position)
      position = parent
    }
    place(key, at: position)
  }

  @inlinable mutating func siftDown(from start: Int) {
    let key = keys[start]
    var position = start
    while true {
      var child = 2 * position + 1
      guard child < keys.count else { break }
      if child + 1 < keys.count, keys[child + 1].precedes(keys[child]) { child += 1 }
      guard keys[child].precedes(key) else { break }
      place(keys[child], at: position)
      position = child
    }
    place(key, at: position)
  }
}

extension DeadlineHeap: Sendable where Element: Sendable, Deadline: Sendable {}
extension DeadlineHeap.Key: Sendable where Deadline: Sendable {}
extension DeadlineHeap.Slot: Sendable where Element: Sendable {}
