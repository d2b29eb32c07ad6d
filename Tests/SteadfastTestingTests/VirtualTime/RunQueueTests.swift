import Testing

@testable import SteadfastTesting

@Suite struct RunQueueTests {
  private func drain(_ queue: inout RunQueue<Int>) -> [Int] {
    var jobs: [Int] = []
    while let job = queue.popNext() { jobs.append(job) }
    return jobs
  }

  @Test func `jobs run in the order in which they became ready`() {
    var queue = RunQueue<Int>(order: .inOrder)
    for job in 0..<1_000 { queue.append(job) }
    #expect(drain(&queue) == Array(0..<1_000))
    #expect(queue.isEmpty)
  }

  @Test func `a job from outside waits until no other job is ready`() {
    var queue = RunQueue<Int>(order: .inOrder)
    queue.appendFromOutside(10)
    queue.appendFromOutside(20)
    queue.append(1)
    #expect(queue.popNext() == 1)
    #expect(queue.popNext() == 10)
    queue.append(11)
    #expect(drain(&queue) == [11, 20])
  }

  @Test func `a seed repeats its order, and different seeds have different orders`() {
    func jobOrder(seed: UInt64) -> [Int] {
      var queue = RunQueue<Int>(order: .shuffled(seed: seed))
      for job in 0..<8 { queue.append(job) }
      return drain(&queue)
    }
    #expect((0..<100).allSatisfy { jobOrder(seed: $0) == jobOrder(seed: $0) })
    #expect((0..<100).allSatisfy { jobOrder(seed: $0).sorted() == Array(0..<8) })
    #expect(Set((0..<100).map(jobOrder)).count > 90)
  }

  @Test func `jobs stay in order in a queue that never becomes empty`() {
    var queue = RunQueue<Int>(order: .inOrder)
    queue.append(0)
    for job in 1..<10_000 {
      queue.append(job)
      #expect(queue.popNext() == job - 1)
    }
  }
}
