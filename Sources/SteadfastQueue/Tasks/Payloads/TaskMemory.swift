/// What a task has stored for its later attempts: values, which are bytes, under names.
///
/// Two names are equal only if their UTF-8 bytes are. A memory with few names uses only one
/// allocation. Reading or setting the bytes under a name takes about as long among many names as
/// among a few.
public struct TaskMemory: Sendable, Hashable {
  private(set) var blocks = TaskMemoryBlocks()

  /// Makes an empty memory.
  public init() {}

  /// Whether the memory has no names.
  public var isEmpty: Bool { blocks.isEmpty }

  /// The number of bytes of all names, in UTF-8, and of all values.
  public var size: Int { blocks.size }

  /// The names, in an order that depends only on the names.
  public var names: [String] { blocks.all.flatMap(\.names) }

  /// The bytes under a name; `nil` if there are none.
  ///
  /// Setting `nil` removes the name. A name has at most 65,535 bytes of UTF-8.
  public subscript(name: String) -> [UInt8]? {
    get { blocks[Array(name.utf8)] }
    set { blocks[Array(name.utf8)] = newValue }
  }

  /// Calls a function with each name and the bytes under it.
  func forEach(_ body: (_ name: String, _ value: [UInt8]) throws -> Void) rethrows {
    for block in blocks.all { try block.forEach(body) }
  }
}

extension TaskMemory: CustomStringConvertible {
  /// The size of the memory, as in `3 names, 120 bytes`, but never its contents.
  public var description: String {
    let count = blocks.all.reduce(0) { $0 + $1.count }
    return "\(count) \(count == 1 ? "name" : "names"), \(size) bytes"
  }
}

/// Names and values in one allocation: all those of a ``TaskMemory``, or some of them.
///
/// Reading or setting the value under a name takes O(n) time in a block of n bytes.
struct TaskMemoryBlock: Sendable, Hashable {
  // The bytes are a sequence of items. Each item consists of the length of its name in 2 bytes, the
  // length of its value in 4 bytes, both with the lowest byte first, the name, and the value. Items
  // are sorted by the length of their names, then by their names. This is not an `Array`, with
  // which `TaskMemoryBlocks` would be larger than a word on some platforms.
  private(set) var bytes: ContiguousArray<UInt8> = []

  private static var headerLength: Int { 6 }

  var isEmpty: Bool { bytes.isEmpty }

  var hasOneName: Bool { !isEmpty && end(ofItemAt: 0) == bytes.count }

  /// The number of names.
  var count: Int { itemStarts.reduce(0) { count, _ in count + 1 } }

  /// The number of bytes of all names, in UTF-8, and of all values.
  var size: Int { itemStarts.reduce(0) { $0 + end(ofItemAt: $1) - $1 - Self.headerLength } }

  /// The names, in order.
  var names: [String] { itemStarts.map { name(ofItemAt: $0) } }

  /// The bytes under a name; `nil` if there are none.
  subscript(name: [UInt8]) -> [UInt8]? {
    let (start, exists) = position(of: name)
    return exists ? Array(bytes[valueRange(ofItemAt: start)]) : nil
  }

  /// Calls a function with each name and the bytes under it.
  func forEach(_ body: (_ name: String, _ value: [UInt8]) throws -> Void) rethrows {
    for start in itemStarts {
      try body(name(ofItemAt: start), Array(bytes[valueRange(ofItemAt: start)]))
    }
  }

  /// Sets the bytes under a name; `nil` removes the name.
  ///
  /// - Returns: The number of bytes by which ``size`` grows; it is negative if it shrinks.
  @discardableResult
  mutating func set(_ value: [UInt8]?, under name: [UInt8]) -> Int {
    let (start, exists) = position(of: name)
    let old = start..<(exists ? end(ofItemAt: start) : start)
    bytes.replaceSubrange(old, with: value.map { Self.item(name: name, value: $0) } ?? [])
    let oldSize = old.isEmpty ? 0 : old.count - Self.headerLength
    return (value.map { name.count + $0.count } ?? 0) - oldSize
  }

  // MARK: Blocks of a memory

  /// Returns the number of bytes of an item; 0 if its value is `nil`.
  static func length(_ value: [UInt8]?, under name: [UInt8]) -> Int {
    value.map { headerLength + name.count + $0.count } ?? 0
  }

  /// Returns whether the block's first name sorts after a name.
  func begins(after name: [UInt8]) -> Bool {
    !isEmpty && order(of: name, relativeToItemAt: 0) == .before
  }

  /// Returns whether the block's last name sorts before a name.
  func ends(before name: [UInt8]) -> Bool { position(of: name).start == bytes.count }

  /// Returns blocks of at most `maxLength` bytes with the same items; a longer item gets its own
  /// block.
  func split(maxLength: Int) -> [TaskMemoryBlock] {
    var blocks: [TaskMemoryBlock] = []
    var begin = 0
    for start in itemStarts where start > begin && end(ofItemAt: start) - begin > maxLength {
      blocks.append(TaskMemoryBlock(bytes: ContiguousArray(bytes[begin..<start])))
      begin = start
    }
    return blocks + [TaskMemoryBlock(bytes: ContiguousArray(bytes[begin...]))]
  }

  // MARK: Items

  private static func item(name: [UInt8], value: [UInt8]) -> [UInt8] {
    precondition(name.count <= UInt16.max, "a name has at most 65,535 bytes")
    precondition(value.count <= UInt32.max, "a value has less than 4 GiB")
    var item: [UInt8] = []
    item.reserveCapacity(headerLength + name.count + value.count)
    for shift in [0, 8] { item.append(UInt8(truncatingIfNeeded: name.count >> shift)) }
    for shift in [0, 8, 16, 24] { item.append(UInt8(truncatingIfNeeded: value.count >> shift)) }
    item.append(contentsOf: name)
    item.append(contentsOf: value)
    return item
  }

  private var itemStarts: some Sequence<Int> {
    sequence(state: 0) { [self] position -> Int? in
      guard position < bytes.count else { return nil }
      defer { position = end(ofItemAt: position) }
      return position
    }
  }

  private func nameLength(ofItemAt start: Int) -> Int {
    Int(bytes[start]) | Int(bytes[start + 1]) << 8
  }

  private func valueLength(ofItemAt start: Int) -> Int {
    // A loop would be slower, and a search for an item reads the lengths of all items before it.
    Int(bytes[start + 2]) | Int(bytes[start + 3]) << 8 | Int(bytes[start + 4]) << 16
      | Int(bytes[start + 5]) << 24
  }

  private func nameRange(ofItemAt start: Int) -> Range<Int> {
    let begin = start + Self.headerLength
    return begin..<begin + nameLength(ofItemAt: start)
  }

  private func valueRange(ofItemAt start: Int) -> Range<Int> {
    let begin = nameRange(ofItemAt: start).upperBound
    return begin..<begin + valueLength(ofItemAt: start)
  }

  private func end(ofItemAt start: Int) -> Int { valueRange(ofItemAt: start).upperBound }

  private func name(ofItemAt start: Int) -> String {
    String(decoding: bytes[nameRange(ofItemAt: start)], as: UTF8.self)
  }

  private enum Order { case before, same, after }

  /// Returns whether a name sorts before an item's name, equals it, or sorts after it.
  private func order(of name: [UInt8], relativeToItemAt start: Int) -> Order {
    let range = nameRange(ofItemAt: start)
    if range.count < name.count { return .after }
    if range.count > name.count { return .before }
    if bytes[range].elementsEqual(name) { return .same }
    return name.lexicographicallyPrecedes(bytes[range]) ? .before : .after
  }

  /// Returns where the item with a name starts or, if it does not exist, would start.
  private func position(of name: [UInt8]) -> (start: Int, exists: Bool) {
    var start = 0
    while start < bytes.count {
      switch order(of: name, relativeToItemAt: start) {
      case .before: return (start, false)
      case .same: return (start, true)
      case .after: start = end(ofItemAt: start)
      }
    }
    return (start, false)
  }
}

/// The names and values of a ``TaskMemory``, in one block or, if they are long, in several.
///
/// A value of this type is one word. A change copies at most one block, even if a copy of the
/// memory shares the blocks.
enum TaskMemoryBlocks: Sendable {
  /// A block with its size, which is then not calculated each time.
  struct SizedBlock: Sendable {
    var block: TaskMemoryBlock
    var size: Int

    init(_ block: TaskMemoryBlock) {
      self.block = block
      size = block.size
    }
  }

  case one(TaskMemoryBlock)
  /// At least two blocks, none of them empty, in the order of their names.
  case many(ContiguousArray<SizedBlock>)

  /// The maximum length of a block with more than one name, in bytes.
  static var maxLength: Int { 8 << 10 }

  init() { self = .one(TaskMemoryBlock()) }

  var isEmpty: Bool { if case .one(let block) = self { block.isEmpty } else { false } }

  /// The number of bytes of all names and values; this takes O(n) time for n blocks.
  var size: Int {
    switch self {
    case .one(let block): block.size
    case .many(let blocks): blocks.reduce(0) { $0 + $1.size }
    }
  }

  /// The blocks, in order.
  var all: [TaskMemoryBlock] {
    switch self {
    case .one(let block): [block]
    case .many(let blocks): blocks.map(\.block)
    }
  }

  /// The bytes under a name; `nil` if there are none.
  ///
  /// Setting `nil` removes the name.
  subscript(name: [UInt8]) -> [UInt8]? {
    get {
      switch self {
      case .one(let block): block[name]
      case .many(let blocks): blocks[Self.index(of: name, in: blocks)].block[name]
      }
    }
    set {
      var blocks: ContiguousArray<SizedBlock>
      switch takeBlocks() {
      case .one(var block):
        let length = TaskMemoryBlock.length(newValue, under: name)
        if block.isEmpty || block.bytes.count + length <= Self.maxLength {
          block.set(newValue, under: name)
          self = .one(block)
          return
        }
        blocks = [SizedBlock(block)]
      case .many(let taken): blocks = taken
      }
      Self.set(newValue, under: name, in: &blocks)
      self = blocks.count > 1 ? .many(blocks) : .one(blocks.first?.block ?? TaskMemoryBlock())
    }
  }

  /// Moves the blocks out of `self`, so that a change does not copy them.
  private mutating func takeBlocks() -> TaskMemoryBlocks {
    let taken = self
    self = TaskMemoryBlocks()
    return taken
  }

  // MARK: Several blocks

  /// Returns the index of the block that contains a name, or to which the name can be added.
  private static func index(of name: [UInt8], in blocks: ContiguousArray<SizedBlock>) -> Int {
    var (low, high) = (0, blocks.count - 1)
    // The name is in no block before `low`, and in none after `high`.
    while low < high {
      let middle = (low + high + 1) / 2
      if blocks[middle].block.begins(after: name) { high = middle - 1 } else { low = middle }
    }
    return low
  }

  private static func set(
    _ value: [UInt8]?,
    under name: [UInt8],
    in blocks: inout ContiguousArray<SizedBlock>
  ) {
    let length = TaskMemoryBlock.length(value, under: name)
    // A block with one long item gets no other items. Otherwise, the block would be split again and
    // again, and each split would leave another block with only a few items.
    func hasCapacity(_ index: Int) -> Bool {
      let block = blocks[index].block
      return block.bytes.count + length <= maxLength
        && !(block.bytes.count > maxLength / 2 && block.hasOneName)
    }
    var index = index(of: name, in: blocks)
    if length > 0, !hasCapacity(index) {
      // If the name belongs at the start or the end of a full block, the block is not split: the
      // item goes into the next block or a new one.
      if blocks[index].block.begins(after: name) {
        blocks.insert(SizedBlock(TaskMemoryBlock()), at: index)
      } else if blocks[index].block.ends(before: name) {
        index += 1
        if index == blocks.count || !hasCapacity(index) {
          blocks.insert(SizedBlock(TaskMemoryBlock()), at: index)
        }
      }
    }
    blocks[index].size += blocks[index].block.set(value, under: name)
    if blocks[index].block.isEmpty {
      blocks.remove(at: index)
    } else if blocks[index].block.bytes.count > maxLength {
      let halves = blocks[index].block.split(maxLength: maxLength / 2)
      if halves.count > 1 {
        blocks.replaceSubrange(index...index, with: halves.map(SizedBlock.init))
      }
    }
  }
}

extension TaskMemoryBlocks: Hashable {
  /// The bytes of all blocks, which don't depend on how the items are split into blocks.
  private var bytes: ContiguousArray<UInt8> {
    switch self {
    case .one(let block): block.bytes
    case .many(let blocks): blocks.reduce(into: []) { $0 += $1.block.bytes }
    }
  }

  static func == (left: TaskMemoryBlocks, right: TaskMemoryBlocks) -> Bool {
    left.bytes == right.bytes
  }

  func hash(into hasher: inout Hasher) { hasher.combine(bytes) }
}
