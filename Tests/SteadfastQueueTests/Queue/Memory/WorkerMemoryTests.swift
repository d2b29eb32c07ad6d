import Testing

@testable import SteadfastQueue

/// The memory of the attempts that one worker makes, one after the other.
@Suite struct WorkerMemoryTests {
  private let memory = WorkerMemory()

  @Test func `an attempt that is over leaves the memory of the next one alone`() {
    memory.with(1) { _ = $0.use("a") }
    #expect(memory.take(1)?.number == 1)
    memory.with(2) { memory in
      _ = memory.use("a")
      memory.decide(.released)
    }
    // A call of the first attempt comes late.
    memory.with(1) { $0.decide(.parked(reason: "late")) }
    #expect(memory.with(1) { $0.ending } == nil)
    #expect(memory.with(2) { $0.use("a") } == false)
    #expect(memory.with(2) { $0.number } == 2)
  }

  @Test func `a late call between two attempts leaves nothing to the second`() {
    memory.with(1) { _ = $0.use("a") }
    _ = memory.take(1)
    memory.with(1) { $0.decide(.released) }
    #expect(memory.with(2) { $0.ending } == nil)
    #expect(memory.take(2)?.ending == nil)
    #expect(!memory.isInUse)
  }

  @Test func `an attempt that remembers nothing has no memory`() {
    #expect(!memory.isInUse)
    #expect(memory.take(1) == nil)
  }
}
