/// A ``Slab`` whose elements are found by their IDs, too.
///
/// An element's ID must not change while it is here.
struct IdentifiedSlab<Element: Identifiable & Sendable>: Sendable where Element.ID: SlotKey {
  private(set) var slab: Slab<Element>
  private var index = SlotIndex()

  init(filler: Element) { slab = Slab(filler: filler) }

  var count: Int { index.count }

  /// The slots in use, in no particular order.
  var slots: some Sequence<Int> { index.all }

  func slot(of id: Element.ID) -> Int? { index.slot(of: id) { slab[$0].id == id } }

  /// Makes room in the index for `count` elements in all.
  mutating func reserveCapacity(_ count: Int) { index.reserveCapacity(count) }

  /// Adds an element whose ID is free.
  ///
  /// - Returns: Its slot.
  mutating func insert(_ element: Element) -> Int {
    let slot = slab.insert(element)
    index.insert(slot, for: element.id)
    return slot
  }

  /// Returns the slot of an ID; if it is free, adds the element that `make` returns.
  mutating func slot(of id: Element.ID, orInsert make: () -> Element) -> Int {
    index.slot(of: id) {
      slab[$0].id == id
    } orInsert: {
      slab.insert(make())
    }
  }

  mutating func remove(_ slot: Int) {
    index.remove(slot, of: slab[slot].id)
    slab.remove(slot)
  }

  /// The element of a slot, or the filler if it is free.
  subscript(slot: Int) -> Element {
    _read { yield slab[slot] }
    _modify { yield &slab[slot] }
  }
}
