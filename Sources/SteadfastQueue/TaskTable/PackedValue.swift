/// A value and its name in one piece of memory, by which a set finds it.
///
/// A store with 10,000 schedules has as many values. With a text for each name, and a dictionary, a
/// schedule took 486 bytes beside its task; so it takes 423.
struct PackedValue: Hashable, Sendable {
  /// The UTF-8 bytes of the name, and then those of the value.
  private let packed: [UInt8]
  private let nameCount: UInt32
  private let fileByteCount: UInt32

  init(_ name: String, _ value: StoredValues.Value) {
    var packed: [UInt8] = []
    packed.reserveCapacity(name.utf8.count + value.bytes.count)
    packed.append(contentsOf: name.utf8)
    nameCount = UInt32(packed.count)
    packed.append(contentsOf: value.bytes)
    self.packed = packed
    fileByteCount = UInt32(clamping: value.byteCount)
  }

  /// What a set finds the value of this name by.
  init(named name: String) { self.init(name, StoredValues.Value(bytes: [])) }

  var name: String { String(decoding: nameBytes, as: UTF8.self) }
  var nameBytes: ArraySlice<UInt8> { packed.prefix(Int(nameCount)) }

  var value: StoredValues.Value {
    StoredValues.Value(
      bytes: Array(packed.dropFirst(Int(nameCount))),
      byteCount: Int(fileByteCount)
    )
  }

  /// Returns whether both have the same name.
  static func == (left: PackedValue, right: PackedValue) -> Bool {
    left.nameBytes == right.nameBytes
  }

  func hash(into hasher: inout Hasher) { hasher.combine(nameBytes) }
}
