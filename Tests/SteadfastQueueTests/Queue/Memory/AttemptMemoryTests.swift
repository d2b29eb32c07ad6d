import Foundation
import Testing

@testable import SteadfastQueue

/// Tests how an attempt reads and changes the memory of its task.
@Suite struct AttemptMemoryTests {
  private var memory = AttemptMemory(of: 1)

  @Test
  mutating func `the memory is read from the store once, and only completions are read again`() {
    var stored = TaskMemory()
    stored["step:a"] = [1]
    stored["outcome:b"] = []
    memory.setLoaded(stored)
    memory.recordStored([2], under: "step:c")
    memory.setLoaded(TaskMemory())
    #expect(memory["step:a"] == [1])
    #expect(memory["step:c"] == [2])
    stored["step:a"] = [9]
    stored["outcome:b"] = [3]
    memory.refresh("outcome:b", from: stored)
    #expect(memory["outcome:b"] == [3])
    #expect(memory["step:a"] == [1])
    #expect(memory.hasProgressed)
  }

  @Test
  mutating func `a name can be used once, and names are equal only if their bytes are equal`() {
    let uses = ["a", "\u{e9}", "e\u{301}", "a"].map { memory.markUsed($0) }
    #expect(uses == [true, true, true, false])
  }

  @Test
  mutating func `the size counts a new value instead of the value that it replaces`() {
    memory.setLoaded(TaskMemory())
    memory.recordStored([1, 2, 3], under: "ab")
    #expect(memory.size(with: [1], under: "ab") == 3)
    #expect(memory.size(with: [1], under: "c") == 7)
  }

  @Test
  mutating func `several waits of an attempt are combined, and the first decision wins`() {
    let (early, late) = (Date(timeIntervalSince1970: 1), Date(timeIntervalSince1970: 2))
    memory.decideEnding(.suspended(until: late, awaiting: ["a"], countedFrom: early))
    memory.decideEnding(.suspended(until: early, awaiting: ["b"], countedFrom: nil))
    memory.decideEnding(.parked(reason: "no"))
    let both = AttemptMemory.Ending.suspended(
      until: early,
      awaiting: ["a", "b"],
      countedFrom: early
    )
    #expect(memory.ending == both)
    var other = AttemptMemory(of: 2)
    other.decideEnding(.released)
    other.decideEnding(.suspended(until: late, awaiting: [], countedFrom: nil))
    #expect(other.ending == .released)
  }

  @Test
  mutating func `the first checkpoint is stored at once, and later checkpoints once a second`() {
    memory.setLoaded(TaskMemory())
    memory.save([1])
    #expect(memory.beginSaving(at: .seconds(0), isDue: false, again: false) == [1])
    memory.save([2])
    #expect(memory.beginSaving(at: .seconds(5), isDue: true, again: false) == nil)
    memory.endSaving([1], at: .seconds(0), isStored: true)
    #expect(memory.beginSaving(at: .milliseconds(999), isDue: false, again: false) == nil)
    #expect(memory.beginSaving(at: .seconds(1), isDue: false, again: false) == [2])
    memory.endSaving([2], at: .seconds(1), isStored: false)
    #expect(memory.unsaved == [2])
    #expect(memory.beginSaving(at: .seconds(1), isDue: false, again: false) == [2])
    memory.save([3])
    memory.endSaving([2], at: .seconds(1), isStored: false)
    #expect(memory.unsaved == [3])
    #expect(memory.beginSaving(at: .seconds(1), isDue: true, again: false) == [3])
    memory.recordStored([3], under: MemoryName.checkpoint)
    memory.endSaving([3], at: .seconds(1), isStored: true)
    #expect(memory.beginSaving(at: .seconds(1), isDue: true, again: false) == nil)
    #expect(memory.beginSaving(at: .seconds(1), isDue: true, again: true) == [3])
  }
}
