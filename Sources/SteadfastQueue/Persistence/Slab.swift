/// Elements at stable indices, in chunks: growing moves nothing, freed slots are used again.
struct Slab<Element: Sendable>: Sendable {
  private static var chunkSize: Int { 256 }
  private var chunks: [[Element?]] = []
  private var free: [Int] = []

  mutating func insert(_ element: Element) -> Int {
    if free.isEmpty {
      let base = chunks.count * Self.chunkSize
      chunks.append(Array(repeating: nil, count: Self.chunkSize))
      free.append(contentsOf: (base..<base + Self.chunkSize).reversed())
    }
    let slot = free.removeLast()
    chunks[slot / Self.chunkSize][slot % Self.chunkSize] = element
    return slot
  }

  mutating func remove(_ slot: Int) {
    chunks[slot / Self.chunkSize][slot % Self.chunkSize] = nil
    free.append(slot)
  }

  /// Slots are below this number.
  var endSlot: Int { chunks.count * Self.chunkSize }

  /// The element of a slot that may be free.
  func element(at slot: Int) -> Element? {
    chunks[slot / Self.chunkSize][slot % Self.chunkSize]
  }

  /// The element of a slot that is known to be in use.
  subscript(slot: Int) -> Element {
    _read {
      guard let element = chunks[slot / Self.chunkSize][slot % Self.chunkSize] else {
        preconditionFailure("slot \(slot) of the task table is free")
      }
      yield element
    }
    _modify {
      guard var element = chunks[slot / Self.chunkSize][slot % Self.chunkSize].take() else {
        preconditionFailure("slot \(slot) of the task table is free")
      }
      defer { chunks[slot / Self.chunkSize][slot % Self.chunkSize] = element }
      yield &element
    }
  }
}
