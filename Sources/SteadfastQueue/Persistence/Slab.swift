/// Elements at stable indices, in chunks: growing moves nothing, freed slots are used again.
///
/// A free slot holds a filler instead of an optional's `nil`: to look at one property of an optional
/// element copies all of it.
struct Slab<Element: Sendable>: Sendable {
  private static var chunkSize: Int { 256 }
  private var chunks: [[Element]] = []
  private var free: [Int] = []
  private let filler: Element

  init(filler: Element) { self.filler = filler }

  mutating func insert(_ element: Element) -> Int {
    if free.isEmpty {
      let base = chunks.count * Self.chunkSize
      chunks.append(Array(repeating: filler, count: Self.chunkSize))
      free.append(contentsOf: (base..<base + Self.chunkSize).reversed())
    }
    let slot = free.removeLast()
    self[slot] = element
    return slot
  }

  mutating func remove(_ slot: Int) {
    self[slot] = filler
    free.append(slot)
  }

  /// Slots are below this number.
  var endSlot: Int { chunks.count * Self.chunkSize }

  /// The element of a slot, or the filler if it is free.
  subscript(slot: Int) -> Element {
    _read { yield chunks[slot / Self.chunkSize][slot % Self.chunkSize] }
    _modify { yield &chunks[slot / Self.chunkSize][slot % Self.chunkSize] }
  }
}
