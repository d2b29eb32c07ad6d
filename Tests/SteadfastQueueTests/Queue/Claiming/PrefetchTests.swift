import Testing

@testable import SteadfastQueue

@Suite struct PrefetchTests {
  @Test func `a store without batches hands out tasks for idle workers only`() {
    var ahead = Prefetch(batch: 0)
    ahead.addDuration(.microseconds(1))
    #expect(ahead.limit(idle: 3, workers: 8) == 3)
  }

  @Test func `nothing is prefetched until an attempt has been measured`() {
    #expect(Prefetch(batch: 64).limit(idle: 1, workers: 8) == 1)
  }

  @Test(arguments: [
    (Duration.zero, 64), (.microseconds(1), 64), (.milliseconds(1), 64), (.milliseconds(2), 40),
    (.milliseconds(5), 16), (.milliseconds(9), 8), (.milliseconds(11), 3), (.seconds(3600), 3),
  ])
  func `a claim requests as many tasks as the workers perform within ten milliseconds`(
    took: Duration,
    limit: Int
  ) {
    var ahead = Prefetch(batch: 64)
    ahead.addDuration(took)
    #expect(ahead.limit(idle: 3, workers: 8) == limit)
  }

  @Test func `a batch size below the number of idle workers has no effect`() {
    var ahead = Prefetch(batch: 4)
    ahead.addDuration(.zero)
    #expect(ahead.limit(idle: 8, workers: 8) == 8)
  }

  @Test func `prefetching stops after one long attempt, and resumes after short attempts`() {
    var ahead = Prefetch(batch: 64)
    for _ in 0..<100 { ahead.addDuration(.microseconds(100)) }
    ahead.addDuration(.seconds(1))
    #expect(ahead.limit(idle: 1, workers: 8) == 1)
    for _ in 0..<40 { ahead.addDuration(.microseconds(100)) }
    #expect(ahead.limit(idle: 1, workers: 8) == 64)
  }

  @Test func `prefetching stops after prefetched tasks have waited too long`() {
    var ahead = Prefetch(batch: 64)
    ahead.addDuration(.zero)
    ahead.noteLongWait()
    #expect(ahead.limit(idle: 1, workers: 8) == 1)
  }

  @Test func `after a claim that contains an interrupted task, nothing is prefetched`() {
    var ahead = Prefetch(batch: 64)
    ahead.addDuration(.zero)
    var interrupted = Claim.numbered(1, 2)
    interrupted.tasks[1].record.interruptionCount = 1
    ahead.checkForInterrupted(in: interrupted.tasks)
    #expect(ahead.limit(idle: 2, workers: 8) == 2)
    // An empty claim says nothing about the waiting tasks.
    ahead.checkForInterrupted(in: [])
    #expect(ahead.limit(idle: 2, workers: 8) == 2)
    ahead.checkForInterrupted(in: Claim.numbered(3).tasks)
    #expect(ahead.limit(idle: 2, workers: 8) == 64)
  }

  // MARK: In the machine

  private func makeMachine(workers: Int = 2) -> WorkMachine {
    var machine = WorkMachine(workers: workers)
    machine.begin(.untilStopped, names: [String](), claimBatch: 64)
    machine.prefetch.addDuration(.zero)
    return machine
  }

  @Test func `a worker starts prefetched tasks before it claims again`() {
    var machine = makeMachine()
    #expect(machine.next().summary == "claim 64")
    _ = machine.receive(.numbered(1, 2, 3), now: .seconds(0))
    #expect(machine.hasExcessTasks)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "perform 2")
    #expect(machine.hasExcessTasks)
    machine.freeWorker()
    #expect(!machine.hasExcessTasks)
    #expect(machine.next().summary == "perform 3")
    machine.freeWorker()
    #expect(machine.next().summary == "claim 64")
  }

  @Test func `a command for a prefetched task doesn't wait for a worker`() {
    var machine = makeMachine(workers: 1)
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2, 3), now: .seconds(0))
    _ = machine.next()
    #expect(machine.request(.cancel, of: .numbered(3)) == .prefetched)
    let unstarted = machine.takeUnstarted { $0.id == .numbered(3) }
    #expect(unstarted.map(\.record.id) == [.numbered(3)])
    // The task is being released, so the command is carried out soon.
    #expect(machine.request(.cancel, of: .numbered(3)) == .kept)
  }

  @Test
  func `tasks that no worker starts in time are released, and the next claim asks for fewer tasks`()
  {
    var machine = makeMachine(workers: 1)
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2, 3), now: .seconds(0))
    _ = machine.next()
    #expect(machine.takeOverdue(ofClaim: 0).isEmpty)
    #expect(machine.takeOverdue(ofClaim: 1).map(\.record.id) == [.numbered(2), .numbered(3)])
    machine.freeWorker()
    #expect(machine.next().summary == "claim 1")
    #expect(machine.takeOverdue(ofClaim: 2).isEmpty)
  }

  @Test
  func `if a claim contains an interrupted task, only one task per idle worker stays claimed`() {
    var machine = makeMachine()
    _ = machine.next()
    var claim = Claim.numbered(1, 2, 3, 4)
    claim.tasks[2].record.interruptionCount = 1
    _ = machine.receive(claim, now: .seconds(0))
    #expect(machine.takeExcessPrefetched().map(\.record.id) == [.numbered(3), .numbered(4)])
    #expect(machine.takeExcessPrefetched().isEmpty)
    _ = machine.next()
    _ = machine.next()
    machine.freeWorker()
    #expect(machine.next().summary == "claim 1")
  }

  @Test func `the first claim after a pause that released tasks is for idle workers only`() {
    var machine = makeMachine()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2, 3), now: .seconds(0))
    machine.setPaused(true)
    #expect(machine.takeUnstartedDuringPause().count == 3)
    machine.setPaused(false)
    #expect(machine.next().summary == "claim 2")
  }
}
