import Testing

@testable import SteadfastQueue

/// Tests the memory of one worker's successive attempts.
@Suite struct WorkerMemoryTests {
  private let memory = WorkerMemory()

  @Test func `a finished attempt doesn't affect the memory of the next attempt`() {
    memory.with(1) { _ = $0.markUsed("a") }
    #expect(memory.take(1)?.number == 1)
    memory.with(2) { memory in
      _ = memory.markUsed("a")
      memory.decideEnding(.released)
    }
    // A call of the first attempt comes after the attempt's end.
    memory.with(1) { $0.decideEnding(.parked(reason: "late")) }
    #expect(memory.with(1) { $0.ending } == nil)
    #expect(memory.with(2) { $0.markUsed("a") } == false)
    #expect(memory.with(2) { $0.number } == 2)
  }

  @Test func `a late call of the first attempt doesn't affect the second attempt`() {
    memory.with(1) { _ = $0.markUsed("a") }
    _ = memory.take(1)
    memory.with(1) { $0.decideEnding(.released) }
    #expect(memory.with(2) { $0.ending } == nil)
    #expect(memory.take(2)?.ending == nil)
    #expect(!memory.isInUse)
  }

  @Test func `an attempt that stores nothing has no memory`() {
    #expect(!memory.isInUse)
    #expect(memory.take(1) == nil)
  }
}
