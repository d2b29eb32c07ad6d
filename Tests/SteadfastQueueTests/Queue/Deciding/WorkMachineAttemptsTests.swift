import Foundation
import Testing

@testable import SteadfastQueue

/// Tests commands for claimed tasks, and results that are not yet stored.
@Suite struct WorkMachineAttemptsTests {
  private let now = Date.seconds(100)

  @Test func `a command for a running task cuts its attempt short`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    let answer = machine.request(.cancel, of: .numbered(2))
    #expect(answer == .interrupt(worker: 1, 2))
    #expect(machine.mustInterrupt(1) && !machine.mustInterrupt(0))
    let command = machine.endAttempt(of: 1)
    #expect(command == .cancel)
    #expect(!machine.mustInterrupt(1))
  }

  @Test
  func `a command for a task that hasn't started is carried out instead of the attempt`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    let early = machine.request(.pause, of: .numbered(2))
    #expect(early == .notLeased)
    _ = machine.receive(.numbered(1, 2), now: now)
    let answer = machine.request(.pause, of: .numbered(2))
    #expect(answer == .kept)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "pause 2")
    #expect(machine.pendingCommands.isEmpty)
    // No attempt is under way that could be cut short.
    #expect(!machine.mustInterrupt(1))
    let later = machine.request(.cancel, of: .numbered(2))
    #expect(later == .kept)
  }

  @Test func `a command for a task that is being released is carried out after the release`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    let claim = Claim.numbered(1, 2)
    _ = machine.receive(claim, now: now)
    machine.setPaused(true)
    #expect(machine.takeUnstartedDuringPause().map(\.lease) == claim.tasks.map(\.lease))
    let answer = machine.request(.cancel, of: .numbered(2))
    #expect(answer == .kept)
    // The run may end before the task is released.
    machine.shutDown()
    machine.end()
    let asked = machine.finishRelease(of: claim.tasks)
    #expect(asked.map(\.id) == [.numbered(2)] && asked.map(\.command) == [.cancel])
    let next = machine.request(.cancel, of: .numbered(2))
    machine.endCommand(for: .numbered(2))
    let later = machine.request(.cancel, of: .numbered(2))
    #expect((next, later) == (.afterAnother, .notLeased))
    #expect(machine.pendingCommands.isEmpty)
  }

  @Test func `a command remains pending if its task can't be released`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    let claim = Claim.numbered(1)
    _ = machine.receive(claim, now: now)
    let unstarted = machine.takeUnstarted()
    _ = machine.request(.cancel, of: .numbered(1))
    machine.returnToOutbox([.numbered(1)])
    let returned = machine.finishRelease(of: unstarted)
    #expect(returned.isEmpty)
    #expect(machine.takeOutbox()?.count == 1)
    let asked = machine.finishStoring().commands
    #expect(asked.map(\.command) == [.cancel])
  }

  @Test func `a claim is in flight until it returns, even after the store has failed`() {
    var machine = WorkMachine.running()
    #expect(machine.claims.finishedCount == 0)
    _ = machine.next()
    machine.fail(TaskQueueError(.storeFailed, "x"))
    #expect(machine.claims.isInFlight && machine.claims.finishedCount == nil)
    machine.claims.fail()
    #expect(!machine.claims.isInFlight && machine.claims.finishedCount == 1)
  }

  @Test func `a later pause doesn't override a cancellation`() {
    var machine = makeMachinePerformingOneTask()
    _ = machine.request(.cancel, of: .numbered(1))
    let pause = machine.request(.pause, of: .numbered(1))
    #expect(pause == .refused)
    let removal = machine.request(.remove, of: .numbered(1))
    #expect(removal == .interrupt(worker: 0, 1))
    let cancel = machine.request(.cancel, of: .numbered(1))
    #expect(cancel == .refused)
    let command = machine.endAttempt(of: 0)
    #expect(command == .remove)
    let kept = machine.request(.cancel, of: .numbered(1))
    let late = machine.request(.pause, of: .numbered(1))
    #expect((kept, late) == (.kept, .refused))
  }

  @Test func `rescheduling a running task is refused, and doesn't override another command`() {
    var machine = makeMachinePerformingOneTask()
    let underWay = machine.request(.reschedule(to: now), of: .numbered(1))
    #expect(underWay == .refused)
    #expect(!machine.mustInterrupt(0))
    _ = machine.endAttempt(of: 0)
    let later = machine.request(.reschedule(to: now), of: .numbered(1))
    let cancel = machine.request(.cancel, of: .numbered(1))
    let tooLate = machine.request(.reschedule(to: now), of: .numbered(1))
    #expect((later, cancel) == (.kept, .kept) && tooLate == .refused)
    #expect(machine.pendingCommands.mapValues(\.command) == [.numbered(1): .cancel])
  }

  @Test func `a command for a task whose attempt has ended waits until the result is stored`() {
    var machine = makeMachinePerformingOneTask()
    _ = machine.endAttempt(of: 0)
    let answer = machine.request(.cancel, of: .numbered(1))
    #expect(answer == .kept)
    _ = machine.freeWorker(with: .numbered(1))
    #expect(machine.isUnsettled(.numbered(1)))
    _ = machine.takeOutbox()
    #expect(machine.isUnsettled(.numbered(1)))
    let requests = machine.finishStoring().commands
    #expect(requests.map(\.id) == [.numbered(1)] && requests.map(\.command) == [.cancel])
    #expect(!machine.isUnsettled(.numbered(1)) && machine.pendingCommands.isEmpty)
  }

  @Test func `a caller waits until an attempt is cut short or ends`() {
    for isCutShort in [true, false] {
      var machine = makeMachinePerformingOneTask()
      let answer = machine.request(.cancel, of: .numbered(1))
      guard case .interrupt(let worker, let number) = answer else {
        Issue.record("the command doesn't interrupt the attempt")
        return
      }
      #expect(machine.isWaitingForInterruption(number, of: worker))
      if isCutShort { machine.markInterrupted(worker) } else { _ = machine.endAttempt(of: worker) }
      #expect(!machine.isWaitingForInterruption(number, of: worker))
    }
  }

  @Test
  func `one worker at a time stores results, including results that arrive while it stores others`()
  {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    _ = machine.freeWorker(with: .numbered(1))
    let first = machine.takeOutbox()
    #expect(first?.count == 1)
    _ = machine.freeWorker(with: .numbered(2))
    let second = machine.takeOutbox()
    #expect(second == nil)
    #expect(machine.isUnsettled(.numbered(1)) && machine.isUnsettled(.numbered(2)))
    _ = machine.finishStoring()
    #expect(machine.takeOutbox()?.map(\.record.id) == [.numbered(2)])
  }

  /// A machine whose only worker performs a task.
  private func makeMachinePerformingOneTask() -> WorkMachine {
    var machine = WorkMachine.running(workers: 1)
    _ = machine.next()
    _ = machine.receive(.numbered(1), now: now)
    _ = machine.next()
    return machine
  }

  /// A machine whose first task has ended, and whose result is being stored.
  ///
  /// The result was taken from the outbox: the results that are to be stored. The store has not
  /// answered yet.
  private func makeMachineStoringFirstResult() -> WorkMachine {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1), now: now)
    _ = machine.next()
    _ = machine.freeWorker(with: .numbered(1))
    _ = machine.takeOutbox()
    return machine
  }

  @Test func `a task claimed again before the store confirms its last result has only one lease`() {
    var machine = makeMachineStoringFirstResult()
    _ = machine.next()
    let lease = Lease(id: .numbered(1), token: 7)
    let again = ClaimedTask(record: .make(1), lease: lease)
    _ = machine.receive(Claim(tasks: [again], nextDate: nil), now: now)
    #expect(machine.leases == [lease])
    _ = machine.next()
    #expect(machine.leases == [lease])
  }

  @Test func `a result remains in flight even if another task can't be released`() {
    var machine = makeMachineStoringFirstResult()
    let answer = machine.request(.cancel, of: .numbered(1))
    #expect(answer == .kept)
    machine.returnToOutbox([.numbered(2)])
    #expect(machine.isUnsettled(.numbered(1)))
    #expect(machine.finishStoring().commands.map(\.id) == [.numbered(1)])
  }

  @Test func `a command that failed remains pending for the next run`() {
    var machine = makeMachineStoringFirstResult()
    _ = machine.request(.pause, of: .numbered(1))
    #expect(machine.finishStoring().commands.count == 1)
    machine.restoreCommand(.pause, for: .numbered(1))
    machine.endCommand(for: .numbered(1))
    machine.fail(TaskQueueError(.storeFailed, "x"))
    let early = machine.takeFailedCommands()
    #expect(early.isEmpty)
    machine.end()
    machine.begin(.untilStopped, names: [String]())
    // Another command replaces the failed command.
    let cancel = machine.request(.cancel, of: .numbered(1))
    #expect(cancel == .kept)
    let asked = machine.takeFailedCommands()
    #expect(asked.map(\.id) == [.numbered(1)] && asked.map(\.command) == [.cancel])
    machine.endCommand(for: .numbered(1))
    let later = machine.request(.cancel, of: .numbered(1))
    #expect(later == .notLeased)
    #expect(machine.pendingCommands.isEmpty)
  }

  @Test func `between runs, a caller's command replaces a failed command`() {
    var machine = makeMachineStoringFirstResult()
    _ = machine.finishStoring()
    machine.restoreCommand(.pause, for: .numbered(1))
    machine.end()
    let cancel = machine.request(.cancel, of: .numbered(1))
    let second = machine.request(.remove, of: .numbered(1))
    #expect((cancel, second) == (.insteadOf(.pause), .afterAnother))
    // The store has failed again.
    machine.restoreCommand(.pause, for: .numbered(1))
    machine.endCommand(for: .numbered(1))
    #expect(machine.pendingCommands.mapValues(\.command) == [.numbered(1): .pause])
    let removal = machine.request(.remove, of: .numbered(1))
    machine.endCommand(for: .numbered(1))
    let later = machine.request(.pause, of: .numbered(1))
    #expect((removal, later) == (.insteadOf(.pause), .notLeased))
  }

  @Test
  func `a command that cuts the attempt short replaces a command requeued during the attempt`() {
    var machine = makeMachinePerformingOneTask()
    machine.restoreCommand(.restart(forgets: false), for: .numbered(1))
    let pause = machine.request(.pause, of: .numbered(1))
    #expect(pause == .interrupt(worker: 0, 1))
    _ = machine.endAttempt(of: 0)
    _ = machine.freeWorker(with: .numbered(1))
    _ = machine.takeOutbox()
    #expect(machine.finishStoring().commands.isEmpty)
  }

  @Test func `a pause doesn't replace a cancellation that was requeued during an attempt`() {
    var machine = makeMachinePerformingOneTask()
    machine.restoreCommand(.cancel, for: .numbered(1))
    let pause = machine.request(.pause, of: .numbered(1))
    #expect(pause == .refused && !machine.mustInterrupt(0))
    #expect(machine.pendingCommands.mapValues(\.command) == [.numbered(1): .cancel])
  }

  @Test func `a command that failed is carried out instead of the next attempt`() {
    var machine = makeMachineStoringFirstResult()
    _ = machine.finishStoring()
    machine.restoreCommand(.cancel, for: .numbered(1))
    _ = machine.next()
    _ = machine.receive(.numbered(1), now: now)
    #expect(machine.next().summary == "cancel 1")
    let rest = machine.takeFailedCommands()
    #expect(rest.isEmpty)
  }

  @Test func `a pause that failed can be withdrawn`() {
    var machine = makeMachineStoringFirstResult()
    _ = machine.finishStoring()
    machine.restoreCommand(.pause, for: .numbered(1))
    let withdrawal = machine.withdrawPause(of: .numbered(1))
    let rest = machine.takeFailedCommands()
    #expect(rest.isEmpty)
    if case .done = withdrawal {} else { Issue.record("\(withdrawal)") }
  }

  @Test func `withdrawing a pause releases the task`() {
    var machine = makeMachinePerformingOneTask()
    _ = machine.request(.pause, of: .numbered(1))
    let withdrawal = machine.withdrawPause(of: .numbered(1))
    if case .done = withdrawal {} else { Issue.record("\(withdrawal)") }
    let command = machine.endAttempt(of: 0)
    #expect(command == .release)
  }
}
