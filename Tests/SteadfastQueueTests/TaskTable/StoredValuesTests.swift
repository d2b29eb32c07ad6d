import Testing

@testable import SteadfastQueue

/// Tests values in the table while changes of the values are being written to a file.
@Suite struct StoredValuesTests {
  private func setting(_ name: String, _ old: [UInt8]?, _ new: [UInt8]?) -> TaskChange {
    .setValue(named: name, from: old, to: new)
  }

  @Test func `a change is compared with the staged value, but a read returns the stored value`() {
    var table = TaskTable()
    _ = table.apply([setting("a", nil, [1])])
    let first = table.stage(setting("a", [1], [2]))
    #expect(table.stage(setting("a", [1], [3])).outcome == .valueDiffers)
    let second = table.stage(setting("a", [2], nil))
    let third = table.stage(setting("a", nil, [4]))
    #expect([first, second, third].map(\.outcome) == [.done, .done, .done])
    #expect(table.values["a"] == [1])
    table.commit(first)
    #expect(table.values["a"] == [2])
    table.commit(second)
    #expect(table.values["a"] == nil)
    #expect(table.stage(setting("a", nil, [5])).outcome == .valueDiffers)
    table.commit(third)
    #expect(table.values["a"] == [4])
    #expect(table.values.staged.isEmpty)
  }

  @Test
  func `rolling back a change also rolls back the later changes of the same name, and no others`() {
    var table = TaskTable()
    _ = table.apply([setting("a", nil, [1])])
    let other = table.stage(setting("b", nil, [9]))
    let stored = table.stage(setting("a", [1], [2]))
    let failed = [table.stage(setting("a", [2], [3])), table.stage(setting("a", [3], nil))]
    for change in failed.reversed() { table.rollBack(change) }
    table.commit(other)
    table.commit(stored)
    #expect(table.values["a"] == [2])
    #expect(table.values["b"] == [9])
    #expect(table.values.staged.isEmpty)
    #expect(table.apply([setting("a", [2], [5])]) == [.done])
  }

  @Test func `a rejected write leaves no value staged`() {
    var table = TaskTable()
    _ = table.apply([.insert(.make(1), onDuplicate: .keep)])
    let taken = TaskChange.insert(.make(1, created: -9), onDuplicate: .keep)
    let outcomes = table.apply([setting("a", nil, [1]), taken, setting("b", nil, [2])])
    #expect(outcomes == [.batchRefused, .identityTaken, .batchRefused])
    let differing = table.apply([setting("a", nil, [1]), taken, setting("b", [0], [2])])
    #expect(differing == [.valueDiffers, .valueDiffers, .valueDiffers])
    #expect(table.values.staged.isEmpty)
    #expect(table.values.committed.isEmpty)
  }

  @Test func `the size in the file is counted when a value is set and when it is removed`() {
    var table = TaskTable()
    for (new, size) in [([1] as [UInt8]?, 40), ([1, 2], 60), ([3], 50), (nil, 30)] {
      let staged = table.stage(setting("a", table.values["a"], new))
      table.setByteCount(size, of: staged)
      table.commit(staged)
      #expect(table.values.byteCount == (new == nil ? 0 : size))
    }
  }
}

@Suite struct PackedValueTests {
  @Test(
    arguments: ["a", "é", "e\u{301}", "steadfast.schedule.000000001", ""],
    [[], [1], [0, 255]]
  )
  func `a value is the same after it was packed and unpacked`(name: String, bytes: [UInt8]) {
    let value = StoredValues.Value(bytes: bytes, byteCount: 77)
    let packed = PackedValue(name, value)
    #expect(packed.name.isExactly(name))
    #expect(packed.value == value)
  }

  @Test func `a Swift set finds a value by the exact bytes of the value's name`() {
    func value(_ byte: UInt8) -> StoredValues.Value { StoredValues.Value(bytes: [byte]) }
    // The bytes of this name and value together are also those of the name "ab" with no value.
    let ambiguous = PackedValue("a", value(UInt8(ascii: "b")))
    var set: Set = [ambiguous, PackedValue("\u{e9}", value(1)), PackedValue("e\u{301}", value(2))]
    #expect(set.count == 3 && !set.contains(PackedValue(named: "ab")))
    #expect(set.update(with: PackedValue("a", value(3)))?.value == value(UInt8(ascii: "b")))
    #expect(set.remove(PackedValue(named: "a"))?.value == value(3))
    #expect(set.remove(PackedValue(named: "\u{e9}"))?.value == value(1))
    #expect(set.map(\.value) == [value(2)])
  }
}
