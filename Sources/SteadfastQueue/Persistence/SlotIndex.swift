/// The slot of each task, by its identity.
///
/// Many dictionaries, among which the identities are spread: one that grows moves all that it has,
/// which takes 0.2 s for a million, in the middle of somebody's call.
struct SlotIndex: Sendable {
  private var parts = Array(repeating: [TaskID: Int](), count: 256)

  private static func part(of id: TaskID) -> Int {
    // The upper bits of the product depend on all bits of both halves, of which one may be constant.
    Int(((id.high ^ id.low) &* 0x9E37_79B9_7F4A_7C15) >> 56)
  }

  var count: Int { parts.reduce(0) { $0 + $1.count } }

  var keys: some Sequence<TaskID> { parts.joined().lazy.map(\.key) }

  var values: some Sequence<Int> { parts.joined().lazy.map(\.value) }

  subscript(id: TaskID) -> Int? {
    get { parts[Self.part(of: id)][id] }
    set { parts[Self.part(of: id)][id] = newValue }
  }

  /// Sets the slot of a task, and returns the one that it had.
  mutating func updateValue(_ slot: Int, forKey id: TaskID) -> Int? {
    parts[Self.part(of: id)].updateValue(slot, forKey: id)
  }
}

extension SlotIndex: Sequence {
  func makeIterator() -> some IteratorProtocol<(key: TaskID, value: Int)> {
    parts.joined().makeIterator()
  }
}
