/// What a task remembers from one attempt to the next: bytes under names.
///
/// Two names are equal if their UTF-8 bytes are. A memory with few names uses one allocation,
/// because many tasks may remember a little. Reading or setting the bytes under a name takes about
/// as long among many names as among a few.
public struct TaskMemory: Sendable, Hashable {
  private(set) var blocks = TaskMemoryBlocks()

  /// Makes an empty memory.
  public init() {}

  /// Whether nothing is remembered.
  public var isEmpty: Bool { blocks.isEmpty }

  /// The number of bytes of all names, in UTF-8, and of all values.
  public var size: Int { blocks.size }

  /// The names under which something is remembered, in an order that is always the same.
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
  /// How much is remembered, as in `3 names, 120 bytes`; never what is remembered.
  public var description: String {
    let count = blocks.all.reduce(0) { $0 + $1.count }
    return "\(count) \(count == 1 ? "name" : "names"), \(size) bytes"
  }
}

/// Bytes under names in one allocation: a ``TaskMemory``, or a part of one.
///
/// Reading or setting the bytes under a name is O(n) for n bytes in all.
struct TaskMemoryBlock: Sendable, Hashable {
  // Each item consists of the length of its name in 2 bytes, the length of its value in 4 bytes,
  // both with the lowest byte first, the name, and the value. Items are sorted by the length of
  // their names, then by their names. With an `Array`, `TaskMemoryBlocks` would be larger than a
  // word on some platforms.
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
    let place = place(of: name)
    return place.isTaken ? Array(bytes[valueRange(ofItemAt: place.start)]) : nil
  }

  /// Calls a function with each name and the bytes under it.
  func forEach(_ body: (_ name: String, _ value: [UInt8]) throws -> Void) rethrows {
    for start in itemStarts {
      try body(name(ofItemAt: start), Array(bytes[valueRange(ofItemAt: start)]))
    }
  }

  /// Sets the bytes under a name, in place; `nil` removes the name.
  ///
  /// - Returns: The number of bytes by which the size grows.
  @discardableResult
  mutating func set(_ value: [UInt8]?, under name: [UInt8]) -> Int {
    let place = place(of: name)
    let old = place.start..<(place.isTaken ? end(ofItemAt: place.start) : place.start)
    bytes.replaceSubrange(old, with: value.map { Self.item(name: name, value: $0) } ?? [])
    let oldSize = old.isEmpty ? 0 : old.count - Self.headerLength
    return (value.map { name.count + $0.count } ?? 0) - oldSize
  }

  // MARK: Parts

  /// The number of bytes of an item; 0 if its value is `nil`.
  static func length(_ value: [UInt8]?, under name: [UInt8]) -> Int {
    value.map { headerLength + name.count + $0.count } ?? 0
  }

  /// Returns whether the block's first name sorts after a name.
  func begins(after name: [UInt8]) -> Bool {
    !isEmpty && order(of: name, relativeToItemAt: 0) == .before
  }

  /// Returns whether the block's last name sorts before a name.
  func ends(before name: [UInt8]) -> Bool { place(of: name).start == bytes.count }

  /// Returns the items in blocks of at most `maxLength` bytes; a longer item gets its own block.
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
    // This has no loop, to be fast: a search for an item reads the lengths of all items before it.
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

  /// Whether a name sorts before an item's name, equals it, or sorts after it.
  private enum Order { case before, same, after }

  private func order(of name: [UInt8], relativeToItemAt start: Int) -> Order {
    let range = nameRange(ofItemAt: start)
    if range.count < name.count { return .after }
    if range.count > name.count { return .before }
    if bytes[range].elementsEqual(name) { return .same }
    return name.lexicographicallyPrecedes(bytes[range]) ? .before : .after
  }

  /// Returns where the item with a name starts, or would start if there was one.
  private func place(of name: [UInt8]) -> (start: Int, isTaken: Bool) {
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

/// The bytes under all names of a ``TaskMemory``: in one block while they are few.
///
/// A value of this type is one word. A change copies or moves at most one block, even while another
/// task memory shares the blocks.
enum TaskMemoryBlocks: Sendable {
  /// One of several blocks.
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
  /// At least two blocks, in the order of their names; none is empty.
  case many(ContiguousArray<Part>)

  /// The maximum length of a block with more than one name, in bytes.
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
  /// Setting `nil` removes the name.
  subscript(name: [UInt8]) -> [UInt8]? {
    get {
      switch self {
      case .one(let block): block[name]
      case .many(let parts): parts[Self.index(of: name, in: parts)].block[name]
      }
    }
    set {
      var parts: ContiguousArray<Part>
      switch takeBlocks() {
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

  /// Moves the blocks out of `self`: if `self` still referenced them, a change would copy them.
  private mutating func takeBlocks() -> TaskMemoryBlocks {
    let taken = self
    self = TaskMemoryBlocks()
    return taken
  }

  // MARK: Several blocks

  /// Returns the index of the block that contains a name, or in which the name belongs.
  private static func index(of name: [UInt8], in parts: ContiguousArray<Part>) -> Int {
    var (low, high) = (0, parts.count - 1)
    // The name is in no block before `low`, and in none after `high`.
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
    // A long item that got its own block from a split keeps that block. If the item shared the
    // block with others again, the next split would leave another block with a few names behind,
    // and so on.
    func hasCapacity(_ index: Int) -> Bool {
      let block = parts[index].block
      return block.bytes.count + length <= maxLength
        && !(block.bytes.count > maxLength / 2 && block.hasOneName)
    }
    var index = index(of: name, in: parts)
    if length > 0, !hasCapacity(index) {
      // A full block is not split if a neighbor, or a new block between them, can store the name.
      if parts[index].block.begins(after: name) {
        parts.insert(Part(TaskMemoryBlock()), at: index)
      } else if parts[index].block.ends(before: name) {
        index += 1
        if index == parts.count || !hasCapacity(index) {
          parts.insert(Part(TaskMemoryBlock()), at: index)
        }
      }
    }
    parts[index].size += parts[index].block.set(value, under: name)
    if parts[index].block.isEmpty {
      parts.remove(at: index)
    } else if parts[index].block.bytes.count > maxLength {
      let halves = parts[index].block.split(maxLength: maxLength / 2)
      if halves.count > 1 { parts.replaceSubrange(index...index, with: halves.map(Part.init)) }
    }
  }
}

extension TaskMemoryBlocks: Hashable {
  /// All bytes; equal names and values have equal bytes, however they are split into blocks.
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
