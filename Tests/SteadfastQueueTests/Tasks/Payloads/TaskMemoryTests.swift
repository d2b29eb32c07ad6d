import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a task's named values when they are stored in one block of memory.
@Suite struct TaskMemoryTests {
  @Test func `a memory returns the last value of each name`() {
    var memory = TaskMemory()
    #expect(memory.isEmpty && memory.size == 0 && memory.names == [])
    #expect(memory["a"] == nil)
    memory["a"] = nil
    #expect(memory.isEmpty)
    memory["step"] = [1, 2, 3]
    memory["é"] = []
    #expect(memory["é"] == [])
    #expect(memory.size == 4 + 3 + 2)
    memory["step"] = [4]
    #expect(memory["step"] == [4])
    #expect(memory.size == 7)
    memory["é"] = nil
    #expect(memory.names == ["step"])
    memory["step"] = nil
    #expect(memory.isEmpty && memory == TaskMemory())
  }

  @Test func `names are equal only if their bytes are equal`() {
    var memory = TaskMemory()
    let names = ["\u{e9}", "e\u{301}", "a", "A", "a ", "\0", "", "\u{10ffff}"]
    for (number, name) in names.enumerated() { memory[name] = [UInt8(number)] }
    for (number, name) in names.enumerated() { #expect(memory[name] == [UInt8(number)]) }
    #expect(memory.names.count == names.count)
  }

  @Test func `names and values may have their maximum lengths`() {
    var memory = TaskMemory()
    let name = String(repeating: "n", count: 65_535)
    let value = [UInt8](repeating: 7, count: 1 << 17)
    for end in ["", "a", "b"] { memory[String(name.dropLast(end.count)) + end] = value }
    #expect(memory.names.count == 3)
    #expect(memory[name] == value)
    #expect(memory.size == 3 * (65_535 + 1 << 17))
  }

  @Test func `a description contains the number of names and bytes, but no names or values`() {
    var memory = TaskMemory()
    #expect("\(memory)" == "0 names, 0 bytes")
    memory["secret"] = [1]
    #expect("\(memory)" == "1 name, 7 bytes")
    memory["other"] = []
    #expect("\(memory)" == "2 names, 12 bytes")
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 20)))
  func `random changes have the same result as in a dictionary`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }
    var (memory, expected) = (TaskMemory(), [String: [UInt8]]())
    for _ in 0..<200 {
      let name = String(repeating: ["a", "b", "é"][pick(3)], count: pick(4) + 1)
      let value = pick(4) == 0 ? nil : [UInt8](repeating: UInt8(pick(256)), count: pick(300))
      memory[name] = value
      expected[name] = value
      #expect(memory[name] == value)
    }
    #expect(Set(memory.names) == Set(expected.keys))
    #expect(memory.size == expected.reduce(0) { $0 + $1.key.utf8.count + $1.value.count })
    var found: [String: [UInt8]] = [:]
    memory.forEach { found[$0] = $1 }
    #expect(found == expected)
    // A memory whose names were set in another order is equal.
    var other = TaskMemory()
    for (name, value) in expected { other[name] = value }
    #expect(other == memory && other.hashValue == memory.hashValue)
    #expect(other.names == memory.names)
  }
}
