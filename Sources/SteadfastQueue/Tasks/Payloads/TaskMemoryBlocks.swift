/// The bytes under all names of a ``TaskMemory``: in one block as long as they are few.
///
/// It takes a word. A change copies or moves no more than one block, also while another task memory
/// has the same blocks.
enum TaskMemoryBlocks: Sendable {
  /// A block of several.
  struct Part: Sendable {
    var block: TaskMemoryBlock
    /// The size of the block.
    var size: Int

    init(_ block: TaskMemoryBlock) {
      self.block = block
      size = block.size
    }
  }

  case one(TaskMemoryBlock)
  /// At least two, in the order of their names; none is empty.
  case many(ContiguousArray<Part>)

  /// The length of a block, in bytes, beyond which it has one name only.
  static var maxLength: Int { 8 << 10 }

  init() { self = .one(TaskMemoryBlock()) }

  var isEmpty: Bool { if case .one(let block) = self { block.isEmpty } else { false } }

  /// The number of bytes of all names and values; O(n) for n blocks.
  var size: Int {
    switch self {
    case .one(let block): block.size
    case .many(let parts): parts.reduce(0) { $0 + $1.size }
    }
  }

  /// The blocks, in order.
  var all: [TaskMemoryBlock] {
    switch self {
    case .one(let block): [block]
    case .many(let parts): parts.map(\.block)
    }
  }

  /// The bytes under a name; `nil` if there are none.
  ///
  /// To set `nil` forgets the name.
  subscript(name: [UInt8]) -> [UInt8]? {
    get {
      switch self {
      case .one(let block): block[name]
      case .many(let parts): parts[Self.index(of: name, in: parts)].block[name]
      }
    }
    set {
      var parts: ContiguousArray<Part>
      switch take() {
      case .one(var block):
        let length = TaskMemoryBlock.length(newValue, under: name)
        if block.isEmpty || block.bytes.count + length <= Self.maxLength {
          block.set(newValue, under: name)
          self = .one(block)
          return
        }
        parts = [Part(block)]
      case .many(let taken): parts = taken
      }
      Self.set(newValue, under: name, in: &parts)
      self = parts.count > 1 ? .many(parts) : .one(parts.first?.block ?? TaskMemoryBlock())
    }
  }

  /// Takes the blocks out: while `self` held them too, a change would copy them.
  private mutating func take() -> TaskMemoryBlocks {
    let taken = self
    self = TaskMemoryBlocks()
    return taken
  }

  // MARK: Several blocks

  /// Returns the index of the block that has a name, or would have it.
  private static func index(of name: [UInt8], in parts: ContiguousArray<Part>) -> Int {
    var (low, high) = (0, parts.count - 1)
    // No block before `low` has the name, and none after `high`.
    while low < high {
      let middle = (low + high + 1) / 2
      if parts[middle].block.begins(after: name) { high = middle - 1 } else { low = middle }
    }
    return low
  }

  private static func set(
    _ value: [UInt8]?,
    under name: [UInt8],
    in parts: inout ContiguousArray<Part>
  ) {
    let length = TaskMemoryBlock.length(value, under: name)
    // A long item that a split has given a block to itself keeps it. If it shared the block again,
    // the next split would leave a block of a few names behind, and so on.
    func hasRoom(_ index: Int) -> Bool {
      let block = parts[index].block
      return block.bytes.count + length <= maxLength
        && !(block.bytes.count > maxLength / 2 && block.hasOneName)
    }
    var index = index(of: name, in: parts)
    if length > 0, !hasRoom(index) {
      // A full block is left alone where a neighbor can have the name, or a block between them.
      if parts[index].block.begins(after: name) {
        parts.insert(Part(TaskMemoryBlock()), at: index)
      } else if parts[index].block.ends(before: name) {
        index += 1
        if index == parts.count || !hasRoom(index) {
          parts.insert(Part(TaskMemoryBlock()), at: index)
        }
      }
    }
    parts[index].size += parts[index].block.set(value, under: name)
    if parts[index].block.isEmpty {
      parts.remove(at: index)
    } else if parts[index].block.bytes.count > maxLength {
      let halves = parts[index].block.split(maxLength / 2)
      if halves.count > 1 { parts.replaceSubrange(index...index, with: halves.map(Part.init)) }
    }
  }
}

extension TaskMemoryBlocks: Hashable {
  /// All bytes; the same for the same names and values, in whatever blocks they are.
  private var bytes: ContiguousArray<UInt8> {
    switch self {
    case .one(let block): block.bytes
    case .many(let parts): parts.reduce(into: []) { $0 += $1.block.bytes }
    }
  }

  static func == (left: TaskMemoryBlocks, right: TaskMemoryBlocks) -> Bool {
    left.bytes == right.bytes
  }

  func hash(into hasher: inout Hasher) { hasher.combine(bytes) }
}
