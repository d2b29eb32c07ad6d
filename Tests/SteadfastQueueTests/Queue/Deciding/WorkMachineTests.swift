import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct WorkMachineTests {
  private let now = Date.seconds(100)

  // MARK: Claims

  @Test func `only one claim is in flight, with a limit of one task per idle worker`() {
    var machine = WorkMachine.running(workers: 3)
    #expect(machine.next().summary == "claim 3")
    #expect(machine.next().summary == "wait")
    #expect(machine.receive(.numbered(1, 2), now: now) == true)
    #expect(machine.next().summary == "perform 1, wake another")
    // Another worker asked for work after the claim began, so the store may have more tasks now.
    #expect(machine.next().summary == "perform 2, wake another")
    #expect(machine.next().summary == "claim 1")
  }

  @Test func `if a worker asks for work during a claim, another claim follows`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.next()
    // The task for which the second worker was woken may have arrived too late for the claim.
    #expect(machine.receive(.numbered(), now: now) == true)
    #expect(machine.next().summary == "claim 2")
    #expect(machine.receive(.numbered(), now: now) == false)
  }

  @Test
  func `another claim follows only if more tasks are available now`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    #expect(machine.receive(.numbered(1, next: now), now: now) == true)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "claim 1")
    #expect(machine.receive(.numbered(next: now + 1), now: now) == false)
  }

  @Test func `a woken worker that starts a task claimed earlier wakes another worker`() {
    var machine = WorkMachine.running(workers: 4)
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2, 3), now: now)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next(wasWoken: true).summary == "perform 2, wake another")
    // The worker may have been woken for a task that was added after the claim.
    #expect(machine.next(wasWoken: true).summary == "perform 3, wake another")
    #expect(machine.next(wasWoken: true).summary == "claim 1")
    // The store had no more tasks. A task that a woken worker claims itself doesn't imply others.
    _ = machine.receive(.numbered(4), now: now)
    #expect(machine.next().summary == "perform 4")
  }

  @Test
  func `an empty claim whose next date has passed isn't repeated at once`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    #expect(machine.receive(.numbered(next: now), now: now) == false)
  }

  @Test func `parked tasks are unparked by the first claim after their handlers are registered`() {
    var machine = WorkMachine(workers: 1)
    machine.begin(.untilStopped, names: ["A", "B"])
    #expect(machine.next().summary == "claim 1, unpark A B")
    _ = machine.receive(.numbered(), now: now)
    #expect(machine.next().summary == "claim 1")
    _ = machine.receive(.numbered(), now: now)
    machine.registerHandlers(for: ["C", "D"])
    #expect(machine.next().summary == "claim 1, unpark C D")
  }

  // MARK: Passes

  @Test func `a pass ends when no task is available and no attempt is under way`() {
    var machine = WorkMachine.running(workers: 2, .pass(cutoff: now))
    _ = machine.next()
    _ = machine.receive(.numbered(1), now: now)
    #expect(machine.next().summary == "perform 1")
    #expect(machine.next().summary == "claim 1")
    #expect(machine.receive(.numbered(next: now + 5), now: now) == true)
    #expect(machine.next().summary == "wait")
    machine.freeWorker()
    // The performed task may have enqueued another task.
    #expect(machine.next().summary == "claim 2")
    #expect(machine.receive(.numbered(next: now + 5), now: now) == true)
    #expect(machine.next().summary == "stop")
    #expect(machine.attemptCount == 1)
  }

  @Test func `cutoffs of passes increase even if the clock stands still`() {
    var machine = WorkMachine(workers: 1)
    let first = machine.nextCutoff(now: now)
    let second = machine.nextCutoff(now: now)
    #expect(first == now)
    #expect(second > first)
    #expect(machine.nextCutoff(now: now - 0.5) > second)
    #expect(machine.nextCutoff(now: now + 50) == now + 50)
  }

  @Test func `setting the clock back moves the cutoff back`() {
    var machine = WorkMachine(workers: 1)
    _ = machine.nextCutoff(now: now)
    #expect(machine.nextCutoff(now: now - 50) == now - 50)
    #expect(machine.nextCutoff(now: now - 50) > now - 50)
  }

  enum News: CaseIterable { case work, handler, fallback, end }

  @Test(arguments: News.allCases)
  func `a pass claims again if a change happens while a claim is in flight`(news: News) {
    var machine = WorkMachine.running(workers: 2, .pass(cutoff: now))
    _ = machine.next()
    _ = machine.receive(.numbered(1, next: now), now: now)
    _ = machine.next()
    #expect(machine.next().summary == "claim 1")
    switch news {
    case .work: machine.workArrived()
    case .handler: machine.registerHandlers(for: ["A"])
    case .fallback: machine.registerFallback()
    case .end: machine.freeWorker()
    }
    #expect(machine.receive(.numbered(), now: now) == true)
    let step = machine.next().summary
    #expect(step.hasPrefix("claim"), "\(step)")
    #expect(machine.receive(.numbered(), now: now) == true)
    #expect(machine.next().summary == (news == .end ? "stop" : "wait"))
  }

  // MARK: The outbox

  @Test func `the finisher is woken once, and stores all accumulated results`() {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    #expect(machine.freeWorker(with: .numbered(1)) == true)
    #expect(machine.takeOutbox()?.count == 1)
    let wakes = machine.freeWorker(with: .numbered(2))
    #expect(!wakes)
    _ = machine.finishStoring()
    #expect(machine.takeOutbox()?.count == 1)
    _ = machine.finishStoring()
    #expect(machine.takeOutbox() == nil)
  }

  @Test func `workers wait while too many results are unstored`() {
    var machine = WorkMachine.running(maxUnsettled: 1)
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.freeWorker(with: .numbered(1))
    #expect(machine.next().summary == "wait")
    _ = machine.takeOutbox()
    #expect(machine.finishStoring().wakesWorkers == true)
    #expect(machine.next().summary == "perform 2")
  }

  @Test func `after a failure, no attempt starts, and the results remain for the next run`() throws
  {
    var machine = WorkMachine.running()
    _ = machine.next()
    _ = machine.receive(.numbered(1, 2), now: now)
    _ = machine.next()
    _ = machine.freeWorker(with: .numbered(1))
    let outbox = machine.takeOutbox()
    let taken = try #require(outbox)
    machine.returnToOutbox(taken)
    machine.fail(TaskQueueError(.storeFailed, "first"))
    machine.fail(TaskQueueError(.storeFailed, "second"))
    #expect(machine.next().summary == "stop")
    #expect(machine.takeOutbox() == nil)
    #expect(machine.takeUnstarted().map(\.lease.id) == [.numbered(2)])
    #expect(machine.failure?.message == "first")
    machine.end()
    machine.begin(.untilStopped, names: [String]())
    #expect(machine.failure == nil)
    #expect(machine.takeOutbox()?.map(\.record.id) == [.numbered(1)])
  }

  // MARK: Life cycle

  @Test func `a run can't start during another run or after a shutdown`() throws {
    var machine = WorkMachine.running()
    #expect(throws: TaskQueueError.self) { try machine.checkCanBegin() }
    machine.shutDown()
    #expect(machine.next().summary == "stop")
    #expect(!machine.hasEnded)
    machine.end()
    #expect(machine.hasEnded)
    #expect(throws: TaskQueueError.self) { try machine.checkCanBegin() }
  }

  // MARK: Limits

  @Test func `a name's remaining capacity is its limit minus its leased tasks`() {
    var machine = WorkMachine.running(workers: 3)
    machine.registerHandlers(for: ["Note"], areLimited: true)
    _ = machine.next()
    let limits = ["Note": 2, "Other": Int.max]
    #expect(
      machine.concurrencyLimits.remainingCounts(within: limits, version: 1) == [
        "Note": 2, "Other": .max,
      ]
    )
    _ = machine.receive(.numbered(1, 2), now: now)
    #expect(
      machine.concurrencyLimits.remainingCounts(within: limits, version: 1) == [
        "Note": 0, "Other": .max,
      ]
    )
    _ = machine.next()
    machine.freeWorker()
    #expect(
      machine.concurrencyLimits.remainingCounts(within: ["Note": 2], version: 2) == ["Note": 1]
    )
    _ = machine.takeUnstarted()
    #expect(
      machine.concurrencyLimits.remainingCounts(within: ["Note": 2], version: 2) == ["Note": 2]
    )
  }
}
