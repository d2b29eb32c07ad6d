import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a task's named values when they are stored in several blocks of memory.
@Suite struct TaskMemoryBlocksTests {
  private let maxLength = TaskMemoryBlocks.maxLength

  /// Describes the invariants that the blocks violate.
  private func problems(of memory: TaskMemory) -> [String] {
    let blocks = memory.blocks.all
    var problems: [String] = []
    if blocks.count > 1, blocks.contains(where: \.isEmpty) { problems.append("one is empty") }
    if blocks.contains(where: { $0.bytes.count > maxLength && !$0.hasOneName }) {
      problems.append("one is too long")
    }
    let names = memory.names.map { Array($0.utf8) }
    let isInOrder = zip(names, names.dropFirst()).allSatisfy { left, right in
      left.count < right.count || left.count == right.count && left.lexicographicallyPrecedes(right)
    }
    if !isInOrder { problems.append("names are not in order") }
    if blocks.reduce(0, { $0 + $1.size }) != memory.size { problems.append("the size is wrong") }
    return problems
  }

  /// The total size of the blocks that are written while `count` names are set.
  ///
  /// The next name is `step` positions after the previous name, cyclically.
  private func bytesWritten(_ count: Int, step: Int) -> Int {
    var memory = TaskMemory()
    var (written, before) = (0, Set<TaskMemoryBlock>())
    for number in 0..<count {
      memory["step:\(100_000 + number * step % count)"] = [UInt8](repeating: 7, count: 500)
      let blocks = Set(memory.blocks.all)
      written += blocks.subtracting(before).reduce(0) { $0 + $1.bytes.count }
      before = blocks
    }
    #expect(memory.names.count == count)
    #expect(problems(of: memory) == [])
    return written
  }

  @Test(arguments: [1, 77, -1])
  func `a change writes about one block, regardless of the number of names`(step: Int) {
    let (few, many) = (100, 200)
    let step = step < 0 ? many - 1 : step
    let written = bytesWritten(many, step: step)
    #expect(written <= 2 * maxLength * many)
    #expect(written <= 3 * bytesWritten(few, step: step))
  }

  @Test func `a few names share one block, which is changed in place`() {
    var memory = TaskMemory()
    for number in 0..<20 { memory["step:\(number)"] = [UInt8](repeating: 7, count: 100) }
    #expect(memory.blocks.all.count == 1)
    #expect(MemoryLayout<TaskMemory>.size == MemoryLayout<Int>.size)
    let before = address(of: memory)
    memory["step:7"] = [UInt8](repeating: 8, count: 100)
    #expect(address(of: memory) == before)
    let copy = memory
    memory["step:7"] = nil
    #expect(copy["step:7"]?.first == 8 && memory["step:7"] == nil)
  }

  /// The address of the first block.
  private func address(of memory: TaskMemory) -> Int? {
    unsafe memory.blocks.all.first?.bytes.withUnsafeBytes { bytes in
      unsafe bytes.baseAddress.map { Int(bitPattern: $0) }
    }
  }

  @Test(arguments: ["a", "zzzzzzzz"])
  func `a long value has its own block, which small changes don't copy`(name: String) {
    for length in [maxLength / 2 + 1, maxLength - 60, 100 * maxLength] {
      var memory = TaskMemory()
      let value = [UInt8](repeating: 1, count: length)
      memory[name] = value
      for number in (0..<1_000).reversed() { memory["x:\(1_000 + number)"] = [2] }
      #expect(memory.blocks.all.count <= 10)
      #expect(problems(of: memory) == [])
      #expect(memory[name] == value && memory["x:1777"] == [2])
      memory[name] = []
      #expect(memory[name] == [] && memory.names.count == 1_001)
      #expect(problems(of: memory) == [])
    }
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 10)))
  func `random changes to many blocks have the same result as in a dictionary`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }
    var (memory, expected) = (TaskMemory(), [String: [UInt8]]())
    for _ in 0..<300 {
      let name = String(repeating: ["a", "b"][pick(2)], count: pick(3)) + "\(pick(40))"
      let length = pick([20, 2_000, 6_000, 20_000][pick(4)])
      let value = pick(4) == 0 ? nil : [UInt8](repeating: UInt8(pick(256)), count: length)
      memory[name] = value
      expected[name] = value
      #expect(memory[name] == value)
    }
    #expect(problems(of: memory) == [])
    #expect(Set(memory.names) == Set(expected.keys))
    for (name, value) in expected { #expect(memory[name] == value) }
    // A memory with the same values in other blocks is equal.
    var other = TaskMemory()
    for (name, value) in expected { other[name] = value }
    #expect(other == memory && other.hashValue == memory.hashValue)
    #expect(other.names == memory.names && other.size == memory.size)
    #expect("\(other)" == "\(memory)")
    for name in expected.keys { memory[name] = nil }
    #expect(memory == TaskMemory() && memory.isEmpty && memory.blocks.all.count == 1)
  }
}
