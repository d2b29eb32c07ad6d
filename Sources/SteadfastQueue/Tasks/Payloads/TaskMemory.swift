/// What a task remembers from one attempt to the next: bytes under names.
///
/// Two names are the same if their UTF-8 bytes are. A few names take one piece of memory together,
/// because many tasks may remember a little. Reading or setting the bytes under a name takes about
/// as long among many names as among a few.
public struct TaskMemory: Sendable, Hashable {
  private(set) var blocks = TaskMemoryBlocks()

  /// Makes a memory without anything in it.
  public init() {}

  /// Whether nothing is remembered.
  public var isEmpty: Bool { blocks.isEmpty }

  /// The number of bytes of all names, in UTF-8, and of all values.
  public var size: Int { blocks.size }

  /// The names under which something is remembered, in an order that is always the same.
  public var names: [String] { blocks.all.flatMap(\.names) }

  /// The bytes under a name; `nil` if there are none.
  ///
  /// To set `nil` forgets the name. A name has at most 65,535 bytes of UTF-8.
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
  /// How much is remembered, as in `3 names, 120 bytes`; never what.
  public var description: String {
    let count = blocks.all.reduce(0) { $0 + $1.count }
    return "\(count) \(count == 1 ? "name" : "names"), \(size) bytes"
  }
}
