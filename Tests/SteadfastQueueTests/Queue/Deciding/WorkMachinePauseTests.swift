import Foundation
import Testing

@testable import SteadfastQueue

/// Tests the workers' steps while the queue is paused.
@Suite struct WorkMachinePauseTests {
  private let now = Date.seconds(100)

  @Test func `a paused pass ends, while a paused run waits`() {
    var pass = WorkMachine.running(.pass(cutoff: now))
    pass.setPaused(true)
    #expect(pass.next().summary == "stop")
    var run = WorkMachine.running()
    run.setPaused(true)
    #expect(run.next().summary == "wait")
    run.setPaused(false)
    #expect(run.next().summary == "claim 2")
  }

  @Test func `no worker leaves a paused pass while another worker performs a task`() {
    var machine = WorkMachine.running(workers: 3, .pass(cutoff: now))
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    machine.setPaused(true)
    #expect(machine.next().summary == "wait")
    machine.freeWorker()
    #expect(machine.next().summary == "wait")
    machine.setPaused(false)
    #expect(machine.next().summary == "claim 2")
    _ = machine.receive(.numbered(), now: now)
    machine.setPaused(true)
    machine.freeWorker()
    #expect(machine.next().summary == "stop")
    // The pass has ended, so resuming the queue does not continue it.
    machine.setPaused(false)
    #expect(machine.next().summary == "stop")
  }

  @Test func `no worker leaves a paused pass while a claim is in flight`() {
    var machine = WorkMachine.running(workers: 2, .pass(cutoff: now))
    _ = machine.next()
    machine.setPaused(true)
    #expect(machine.next().summary == "wait")
    machine.setPaused(false)
    _ = machine.receive(.numbered(1, 2), now: now)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "perform 2")
  }

  @Test func `a worker that carries out a command wakes another worker for the remaining tasks`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.request(.cancel, of: .numbered(1))
    #expect(machine.next().summary == "cancel 1, wake another")
    #expect(machine.next().summary == "perform 2")
  }
}
