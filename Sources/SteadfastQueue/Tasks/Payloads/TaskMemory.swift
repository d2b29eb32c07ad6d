/// What a task remembers from one attempt to the next: bytes under names.
///
/// Two names are the same if their UTF-8 bytes are. It takes one piece of memory however many names
/// it has, because many tasks may remember a little. Reading or setting the bytes under a name is
/// O(n) for n bytes in all.
public struct TaskMemory: Sendable, Hashable {
  // Each item is the length of its name in 2 bytes, the length of its value in 4 bytes, both with
  // the lowest byte first, the name, and the value. Items are in the order of the lengths of their
  // names, and of their names.
  private var bytes: [UInt8] = []

  private static var headerLength: Int { 6 }

  /// Makes a memory without anything in it.
  public init() {}

  /// Whether nothing is remembered.
  public var isEmpty: Bool { bytes.isEmpty }

  /// The number of bytes of all names, in UTF-8, and of all values.
  public var size: Int { itemStarts.reduce(0) { $0 + end(ofItemAt: $1) - $1 - Self.headerLength } }

  /// The names under which something is remembered, in an order that is always the same.
  public var names: [String] { itemStarts.map { name(ofItemAt: $0) } }

  /// The bytes under a name; `nil` if there are none.
  ///
  /// To set `nil` forgets the name. A name has at most 65,535 bytes of UTF-8.
  public subscript(name: String) -> [UInt8]? {
    get {
      let place = place(of: Array(name.utf8))
      return place.isTaken ? Array(bytes[valueRange(ofItemAt: place.start)]) : nil
    }
    set {
      let name = Array(name.utf8)
      let place = place(of: name)
      let old = place.start..<(place.isTaken ? end(ofItemAt: place.start) : place.start)
      bytes.replaceSubrange(old, with: newValue.map { Self.item(name, $0) } ?? [])
    }
  }

  /// Calls a function with each name and the bytes under it.
  func forEach(_ body: (_ name: String, _ value: [UInt8]) throws -> Void) rethrows {
    for start in itemStarts {
      try body(name(ofItemAt: start), Array(bytes[valueRange(ofItemAt: start)]))
    }
  }

  // MARK: Items

  private static func item(_ name: [UInt8], _ value: [UInt8]) -> [UInt8] {
    precondition(name.count <= UInt16.max, "a name has at most 65,535 bytes")
    precondition(value.count <= UInt32.max, "a value has less than 4 GiB")
    var item: [UInt8] = []
    item.reserveCapacity(headerLength + name.count + value.count)
    for shift in [0, 8] { item.append(UInt8(truncatingIfNeeded: name.count >> shift)) }
    for shift in [0, 8, 16, 24] { item.append(UInt8(truncatingIfNeeded: value.count >> shift)) }
    return item + name + value
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
    (2..<Self.headerLength).reduce(0) { $0 | Int(bytes[start + $1]) << (8 * ($1 - 2)) }
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

  /// Returns where the item with a name is, or would be.
  private func place(of name: [UInt8]) -> (start: Int, isTaken: Bool) {
    for start in itemStarts {
      let range = nameRange(ofItemAt: start)
      if range.count < name.count { continue }
      if range.count > name.count { return (start, false) }
      if bytes[range].elementsEqual(name) { return (start, true) }
      if name.lexicographicallyPrecedes(bytes[range]) { return (start, false) }
    }
    return (bytes.count, false)
  }
}

extension TaskMemory: CustomStringConvertible {
  /// How much is remembered, as in `3 names, 120 bytes`; never what.
  public var description: String {
    let count = itemStarts.reduce(0) { count, _ in count + 1 }
    return "\(count) \(count == 1 ? "name" : "names"), \(size) bytes"
  }
}
