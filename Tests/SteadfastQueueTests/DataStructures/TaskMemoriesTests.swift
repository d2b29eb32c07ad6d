import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the collection that stores the memory of each task under the task's slot.
@Suite struct TaskMemoriesTests {
  private func makeMemory(value: UInt8) -> TaskMemory {
    var memory = TaskMemory()
    memory["step"] = [value]
    return memory
  }

  @Test func `a slot for which no memory was set has an empty memory`() {
    var memories = TaskMemories()
    #expect(memories[0].isEmpty && memories[100_000].isEmpty)
    memories[100_000] = TaskMemory()
    #expect(memories[100_000].isEmpty)
    memories[700] = makeMemory(value: 1)
    #expect(memories[699].isEmpty && memories[701].isEmpty && memories[0].isEmpty)
    #expect(memories[700] == makeMemory(value: 1))
  }

  @Test func `changing memories does not change a copy`() {
    var memories = TaskMemories()
    for slot in [0, 255, 256, 1_000] { memories[slot] = makeMemory(value: UInt8(slot % 256)) }
    let copy = memories
    for slot in [0, 255, 256, 1_000] { memories[slot] = TaskMemory() }
    memories[1] = makeMemory(value: 9)
    for slot in [0, 255, 256, 1_000] {
      #expect(copy[slot] == makeMemory(value: UInt8(slot % 256)))
      #expect(memories[slot].isEmpty)
    }
    #expect(copy[1].isEmpty)
  }

  @Test func `changing a memory in place does not change a copy`() {
    var memories = TaskMemories()
    memories.changeMemory(of: 300) { $0["step"] = [1] }
    memories.changeMemory(of: 301) { $0["step"] = nil }
    #expect(memories[300] == makeMemory(value: 1) && memories[301].isEmpty)
    let copy = memories
    memories.changeMemory(of: 300) { $0["step"] = [2] }
    #expect(memories[300] == makeMemory(value: 2) && copy[300] == makeMemory(value: 1))
    memories.changeMemory(of: 300) { $0["step"] = nil }
    #expect(memories[300].isEmpty && copy[300] == makeMemory(value: 1))
    memories[300] = makeMemory(value: 3)
    #expect(memories[300] == makeMemory(value: 3))
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 10)))
  func `random changes have the same result as in a dictionary`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var (memories, expected) = (TaskMemories(), [Int: TaskMemory]())
    for _ in 0..<2_000 {
      let slot = Int(random.next() % 1_500)
      let memory =
        random.next() % 3 == 0 ? TaskMemory() : makeMemory(value: UInt8(random.next() % 256))
      memories[slot] = memory
      expected[slot] = memory
    }
    for slot in 0..<1_500 { #expect(memories[slot] == expected[slot] ?? TaskMemory()) }
  }
}
