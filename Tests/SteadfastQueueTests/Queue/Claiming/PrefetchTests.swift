import Testing

@testable import SteadfastQueue

@Suite struct PrefetchTests {
  @Test func `without a batch, a claim is for idle workers only`() {
    var ahead = Prefetch(batch: 0)
    ahead.note(.microseconds(1))
    #expect(ahead.limit(idle: 3, workers: 8) == 3)
  }

  @Test func `nothing is claimed ahead before an attempt was measured`() {
    #expect(Prefetch(batch: 64).limit(idle: 1, workers: 8) == 1)
  }

  @Test(arguments: [
    (Duration.zero, 64), (.microseconds(1), 64), (.milliseconds(1), 64), (.milliseconds(2), 40),
    (.milliseconds(5), 16), (.milliseconds(9), 8), (.milliseconds(11), 3), (.seconds(3600), 3),
  ])
  func `as much is claimed as is performed in ten milliseconds`(took: Duration, limit: Int) {
    var ahead = Prefetch(batch: 64)
    ahead.note(took)
    #expect(ahead.limit(idle: 3, workers: 8) == limit)
  }

  @Test func `a batch for fewer tasks than there are idle workers changes nothing`() {
    var ahead = Prefetch(batch: 4)
    ahead.note(.zero)
    #expect(ahead.limit(idle: 8, workers: 8) == 8)
  }

  @Test func `one long attempt among short ones ends it, and short ones begin it again`() {
    var ahead = Prefetch(batch: 64)
    for _ in 0..<100 { ahead.note(.microseconds(100)) }
    ahead.note(.seconds(1))
    #expect(ahead.limit(idle: 1, workers: 8) == 1)
    for _ in 0..<40 { ahead.note(.microseconds(100)) }
    #expect(ahead.limit(idle: 1, workers: 8) == 64)
  }

  @Test func `tasks that have waited too long end it`() {
    var ahead = Prefetch(batch: 64)
    ahead.note(.zero)
    ahead.waitedTooLong()
    #expect(ahead.limit(idle: 1, workers: 8) == 1)
  }

  @Test func `beside a task that was interrupted, none is claimed ahead`() {
    var ahead = Prefetch(batch: 64)
    ahead.note(.zero)
    var interrupted = Claim.numbered(1, 2)
    interrupted.tasks[1].record.interruptionCount = 1
    ahead.claimed(interrupted.tasks)
    #expect(ahead.limit(idle: 2, workers: 8) == 2)
    // A claim that finds nothing says nothing of the tasks that wait.
    ahead.claimed([])
    #expect(ahead.limit(idle: 2, workers: 8) == 2)
    ahead.claimed(Claim.numbered(3).tasks)
    #expect(ahead.limit(idle: 2, workers: 8) == 64)
  }

  // MARK: In the machine

  private func machine(workers: Int = 2) -> WorkMachine {
    var machine = WorkMachine(workers: workers)
    machine.begin(.untilStopped, names: [String](), claimBatch: 64)
    machine.ahead.note(.zero)
    return machine
  }

  @Test func `a worker begins what was claimed ahead before it claims again`() {
    var machine = machine()
    #expect(machine.next().summary == "claim 64")
    _ = machine.claimed(.numbered(1, 2, 3), now: .seconds(0))
    #expect(machine.isAhead)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "perform 2")
    #expect(machine.isAhead)
    machine.finished()
    #expect(!machine.isAhead)
    #expect(machine.next().summary == "perform 3")
    machine.finished()
    #expect(machine.next().summary == "claim 64")
  }

  @Test func `a request for a task that was claimed ahead does not wait for a worker`() {
    var machine = machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(.numbered(1, 2, 3), now: .seconds(0))
    _ = machine.next()
    #expect(machine.request(.cancel, of: .numbered(3)) == .claimedAhead)
    let taken = machine.takeUnbegun { $0.id == .numbered(3) }
    #expect(taken.map(\.record.id) == [.numbered(3)])
    // It is on its way into the store, which does not take long.
    #expect(machine.request(.cancel, of: .numbered(3)) == .kept)
  }

  @Test func `tasks that no worker begins are taken, and less is claimed after them`() {
    var machine = machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(.numbered(1, 2, 3), now: .seconds(0))
    _ = machine.next()
    #expect(machine.takeOverdue(ofClaim: 0).isEmpty)
    #expect(machine.takeOverdue(ofClaim: 1).map(\.record.id) == [.numbered(2), .numbered(3)])
    machine.finished()
    #expect(machine.next().summary == "claim 1")
    #expect(machine.takeOverdue(ofClaim: 2).isEmpty)
  }

  @Test func `beside a task that was interrupted, only as many stay as there are idle workers`() {
    var machine = machine()
    _ = machine.next()
    var claim = Claim.numbered(1, 2, 3, 4)
    claim.tasks[2].record.interruptionCount = 1
    _ = machine.claimed(claim, now: .seconds(0))
    #expect(machine.takeTooMany().map(\.record.id) == [.numbered(3), .numbered(4)])
    #expect(machine.takeTooMany().isEmpty)
    _ = machine.next()
    _ = machine.next()
    machine.finished()
    #expect(machine.next().summary == "claim 1")
  }

  @Test func `what a pause owes an attempt is claimed for idle workers only`() {
    var machine = machine()
    _ = machine.next()
    _ = machine.claimed(.numbered(1, 2, 3), now: .seconds(0))
    machine.setPaused(true)
    #expect(machine.takeHeldBack().count == 3)
    machine.setPaused(false)
    #expect(machine.next().summary == "claim 2")
  }
}
