import Foundation
import Testing

@testable import SteadfastQueue

extension WorkMachine.Step {
  /// The step in a word, for comparison.
  fileprivate var summary: String {
    switch self {
    case .perform(let task, _, let wakesAnother):
      "perform \(task.lease.id.low)\(wakesAnother ? ", wake another" : "")"
    case .obey(let directive, let task): "\(directive) \(task.lease.id.low)"
    case .claim(let limit, let parked):
      "claim \(limit)"
        + (parked.names.isEmpty ? "" : ", unpark \(parked.names.sorted().joined(separator: " "))")
    case .wait: "wait"
    case .stop: "stop"
    }
  }
}

extension WorkMachine {
  /// The step of the first worker that performs nothing.
  fileprivate mutating func next() -> Step {
    next(for: attempts.firstIndex { $0 == nil } ?? 0)
  }

  /// The first worker that performs something has ended its attempt, and that is kept.
  fileprivate mutating func finished() {
    finished(attempts.firstIndex { $0 != nil } ?? 0, isAttempt: true)
  }

  /// The first worker that performs something has ended its attempt.
  fileprivate mutating func finished(with settlement: Settlement) -> Bool {
    finished(attempts.firstIndex { $0 != nil } ?? 0, with: settlement, isAttempt: true)
  }
}

@Suite struct WorkMachineTests {
  private let now = Date.seconds(100)

  private func machine(
    workers: Int = 2,
    _ mode: WorkMachine.Mode = .untilStopped,
    maxUnsettled: Int = 1024
  ) throws -> WorkMachine {
    var machine = WorkMachine(workers: workers, maxUnsettled: maxUnsettled)
    try machine.begin(mode, names: [String]())
    return machine
  }

  private func claim(_ numbers: Int..., next: Date? = nil) -> Claim {
    Claim(
      tasks: numbers.map {
        ClaimedTask(record: .make($0), lease: Lease(id: .numbered($0), token: UInt64($0)))
      },
      nextDate: next
    )
  }

  private func settlement(_ number: Int) -> Settlement {
    Settlement(
      change: .release(Lease(id: .numbered(number), token: UInt64(number))),
      record: .make(number)
    )
  }

  // MARK: Claims

  @Test func `one claim is in flight, for as many tasks as there are idle workers`() throws {
    var machine = try machine(workers: 3)
    #expect(machine.next().summary == "claim 3")
    #expect(machine.next().summary == "wait")
    #expect(machine.claimed(claim(1, 2), now: now) == true)
    #expect(machine.next().summary == "perform 1, wake another")
    // Two have asked meanwhile, so that more may be there.
    #expect(machine.next().summary == "perform 2, wake another")
    #expect(machine.next().summary == "claim 1")
  }

  @Test func `a worker that asked while a claim was in flight has the store asked again`() throws {
    var machine = try machine()
    _ = machine.next()
    _ = machine.next()
    // The task that woke the second worker may have come too late for the claim.
    #expect(machine.claimed(claim(), now: now) == true)
    #expect(machine.next().summary == "claim 2")
    #expect(machine.claimed(claim(), now: now) == false)
  }

  @Test func `a store that has more is asked again, one that has later tasks is not`() throws {
    var machine = try machine()
    _ = machine.next()
    #expect(machine.claimed(claim(1, next: now), now: now) == true)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "claim 1")
    #expect(machine.claimed(claim(next: now + 1), now: now) == false)
  }

  @Test
  func `a store that names a date that has come, and hands out nothing, is not asked at once`()
    throws
  {
    var machine = try machine()
    _ = machine.next()
    #expect(machine.claimed(claim(next: now), now: now) == false)
  }

  @Test func `names are unparked once, by the first claim`() throws {
    var machine = WorkMachine(workers: 1)
    try machine.begin(.untilStopped, names: ["A", "B"])
    #expect(machine.next().summary == "claim 1, unpark A B")
    _ = machine.claimed(claim(), now: now)
    #expect(machine.next().summary == "claim 1")
    _ = machine.claimed(claim(), now: now)
    machine.registered(["C", "D"])
    #expect(machine.next().summary == "claim 1, unpark C D")
  }

  // MARK: Passes

  @Test func `a pass ends when nothing is left and nothing is performed`() throws {
    var machine = try machine(workers: 2, .pass(horizon: now))
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    #expect(machine.next().summary == "perform 1")
    #expect(machine.next().summary == "claim 1")
    #expect(machine.claimed(claim(next: now + 5), now: now) == true)
    #expect(machine.next().summary == "wait")
    machine.finished()
    // The task may have enqueued another.
    #expect(machine.next().summary == "claim 2")
    #expect(machine.claimed(claim(next: now + 5), now: now) == true)
    #expect(machine.next().summary == "stop")
    #expect(machine.attemptCount == 1)
  }

  @Test func `a paused pass ends, a paused run waits`() throws {
    var pass = try machine(.pass(horizon: now))
    pass.setPaused(true)
    #expect(pass.next().summary == "stop")
    var run = try machine()
    run.setPaused(true)
    #expect(run.next().summary == "wait")
    run.setPaused(false)
    #expect(run.next().summary == "claim 2")
  }

  @Test func `the horizons of passes grow though the clock stands still`() {
    var machine = WorkMachine(workers: 1)
    let first = machine.nextHorizon(now: now)
    let second = machine.nextHorizon(now: now)
    #expect(first == now)
    #expect(second > first)
    #expect(machine.nextHorizon(now: now - 0.5) > second)
    #expect(machine.nextHorizon(now: now + 50) == now + 50)
  }

  @Test func `a clock that was set back takes the horizon with it`() {
    var machine = WorkMachine(workers: 1)
    _ = machine.nextHorizon(now: now)
    #expect(machine.nextHorizon(now: now - 50) == now - 50)
    #expect(machine.nextHorizon(now: now - 50) > now - 50)
  }

  // MARK: The outbox

  @Test func `the finisher is woken once, and takes all that has gathered`() throws {
    var machine = try machine()
    _ = machine.next()
    _ = machine.claimed(claim(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    #expect(machine.finished(with: settlement(1)) == true)
    #expect(machine.takeOutbox()?.count == 1)
    let wakes = machine.finished(with: settlement(2))
    #expect(!wakes)
    _ = machine.settled()
    #expect(machine.takeOutbox()?.count == 1)
    _ = machine.settled()
    #expect(machine.takeOutbox() == nil)
  }

  @Test func `workers wait while too much is to be stored`() throws {
    var machine = try machine(maxUnsettled: 1)
    _ = machine.next()
    _ = machine.claimed(claim(1, 2), now: now)
    _ = machine.next()
    _ = machine.finished(with: settlement(1))
    #expect(machine.next().summary == "wait")
    _ = machine.takeOutbox()
    #expect(machine.settled().wakesWorkers == true)
    #expect(machine.next().summary == "perform 2")
  }

  @Test func `after a failure nothing begins, and what ended is kept for the next run`() throws {
    var machine = try machine()
    _ = machine.next()
    _ = machine.claimed(claim(1, 2), now: now)
    _ = machine.next()
    _ = machine.finished(with: settlement(1))
    let outbox = machine.takeOutbox()
    let taken = try #require(outbox)
    machine.putBack(taken)
    machine.fail(TaskQueueError(.storeFailed, "first"))
    machine.fail(TaskQueueError(.storeFailed, "second"))
    #expect(machine.next().summary == "stop")
    #expect(machine.takeOutbox() == nil)
    #expect(machine.takeUnbegun().map(\.lease.id) == [.numbered(2)])
    #expect(machine.failure?.message == "first")
    machine.end()
    try machine.begin(.untilStopped, names: [String]())
    #expect(machine.failure == nil)
    #expect(machine.takeOutbox()?.map(\.record.id) == [.numbered(1)])
  }

  // MARK: Life cycle

  @Test func `a run can't begin twice, nor after shutdown`() throws {
    var machine = try machine()
    #expect(throws: TaskQueueError.self) {
      try machine.begin(.untilStopped, names: [String]())
    }
    machine.shutDown()
    #expect(machine.next().summary == "stop")
    #expect(!machine.hasEnded)
    machine.end()
    #expect(machine.hasEnded)
    #expect(throws: TaskQueueError.self) {
      try machine.begin(.untilStopped, names: [String]())
    }
  }

  // MARK: Requests

  @Test func `what is asked of a task that is performed cuts its attempt short`() throws {
    var machine = try machine()
    _ = machine.next()
    _ = machine.claimed(claim(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    let answer = machine.request(.cancel, of: .numbered(2))
    #expect(answer == .interrupt(worker: 1))
    #expect(machine.isInterrupted(1) && !machine.isInterrupted(0))
    let directive = machine.endAttempt(of: 1)
    #expect(directive == .cancel)
    #expect(!machine.isInterrupted(1))
  }

  @Test func `what is asked of a task before its attempt begins is done in its place`() throws {
    var machine = try machine()
    _ = machine.next()
    let early = machine.request(.pause, of: .numbered(2))
    #expect(early == .notHeld)
    _ = machine.claimed(claim(1, 2), now: now)
    let answer = machine.request(.pause, of: .numbered(2))
    #expect(answer == .kept)
    #expect(machine.next().summary == "perform 1, wake another")
    #expect(machine.next().summary == "pause 2")
    #expect(machine.requests.isEmpty)
    // It is not an attempt that could be cut short.
    #expect(!machine.isInterrupted(1))
    let later = machine.request(.cancel, of: .numbered(2))
    #expect(later == .kept)
  }

  @Test func `a task that is to end is not set aside by what is asked later`() throws {
    var machine = try machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    _ = machine.next()
    _ = machine.request(.cancel, of: .numbered(1))
    let pause = machine.request(.pause, of: .numbered(1))
    #expect(pause == .refused)
    let removal = machine.request(.remove, of: .numbered(1))
    #expect(removal == .interrupt(worker: 0))
    let cancel = machine.request(.cancel, of: .numbered(1))
    #expect(cancel == .refused)
    let directive = machine.endAttempt(of: 0)
    #expect(directive == .remove)
    let kept = machine.request(.cancel, of: .numbered(1))
    let late = machine.request(.pause, of: .numbered(1))
    #expect((kept, late) == (.kept, .refused))
  }

  @Test func `another date is not asked of a task that is performed, and undoes nothing else`()
    throws
  {
    var machine = try machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    _ = machine.next()
    let underWay = machine.request(.reschedule(to: now), of: .numbered(1))
    #expect(underWay == .refused)
    #expect(!machine.isInterrupted(0))
    _ = machine.endAttempt(of: 0)
    let later = machine.request(.reschedule(to: now), of: .numbered(1))
    let cancel = machine.request(.cancel, of: .numbered(1))
    let tooLate = machine.request(.reschedule(to: now), of: .numbered(1))
    #expect((later, cancel) == (.kept, .kept) && tooLate == .refused)
    #expect(machine.requests == [.numbered(1): .cancel])
  }

  @Test func `what is asked of a task whose attempt has ended waits until that is kept`() throws {
    var machine = try machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    _ = machine.next()
    _ = machine.endAttempt(of: 0)
    let answer = machine.request(.cancel, of: .numbered(1))
    #expect(answer == .kept)
    _ = machine.finished(with: settlement(1))
    #expect(machine.isUnsettled(.numbered(1)))
    _ = machine.takeOutbox()
    #expect(machine.isUnsettled(.numbered(1)))
    let requests = machine.settled().requests
    #expect(requests.map(\.0) == [.numbered(1)] && requests.map(\.1) == [.cancel])
    #expect(!machine.isUnsettled(.numbered(1)) && machine.requests.isEmpty)
  }

  @Test func `one settles at a time, and takes what others leave`() throws {
    var machine = try machine()
    _ = machine.next()
    _ = machine.claimed(claim(1, 2), now: now)
    _ = machine.next()
    _ = machine.next()
    _ = machine.finished(with: settlement(1))
    let first = machine.takeOutbox()
    #expect(first?.count == 1)
    _ = machine.finished(with: settlement(2))
    let second = machine.takeOutbox()
    #expect(second == nil)
    #expect(machine.isUnsettled(.numbered(1)) && machine.isUnsettled(.numbered(2)))
    _ = machine.settled()
    #expect(machine.takeOutbox()?.map(\.record.id) == [.numbered(2)])
  }

  /// The end of the first task was taken to be kept, and is not known to be.
  private func machineKeepingFirstEnd() throws -> WorkMachine {
    var machine = try machine()
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    _ = machine.next()
    _ = machine.finished(with: settlement(1))
    _ = machine.takeOutbox()
    return machine
  }

  @Test func `of a task that was claimed again before its last end was told one lease is named`()
    throws
  {
    var machine = try machineKeepingFirstEnd()
    _ = machine.next()
    let lease = Lease(id: .numbered(1), token: 7)
    let again = ClaimedTask(record: .make(1), lease: lease)
    _ = machine.claimed(Claim(tasks: [again], nextDate: nil), now: now)
    #expect(machine.leases == [lease])
    _ = machine.next()
    #expect(machine.leases == [lease])
  }

  @Test func `what is being kept stays so though something else could not be put back`() throws {
    var machine = try machineKeepingFirstEnd()
    let answer = machine.request(.cancel, of: .numbered(1))
    #expect(answer == .kept)
    machine.putBack([settlement(2)])
    #expect(machine.isUnsettled(.numbered(1)))
    #expect(machine.settled().requests.map(\.0) == [.numbered(1)])
  }

  @Test func `a pause that is taken back puts the task back`() throws {
    var machine = try machine(workers: 1)
    _ = machine.next()
    _ = machine.claimed(claim(1), now: now)
    _ = machine.next()
    _ = machine.request(.pause, of: .numbered(1))
    let isTakenBack = machine.withdrawPause(of: .numbered(1))
    #expect(isTakenBack)
    let directive = machine.endAttempt(of: 0)
    #expect(directive == .release)
  }

  // MARK: Limits

  @Test func `a limited name has the room that its leased tasks leave`() throws {
    var machine = try machine(workers: 3)
    machine.registered(["Note"], areLimited: true)
    _ = machine.next()
    #expect(machine.room(in: ["Note": 2, "Other": .max]) == ["Note": 2, "Other": .max])
    _ = machine.claimed(claim(1, 2), now: now)
    #expect(machine.room(in: ["Note": 2, "Other": .max]) == ["Note": 0, "Other": .max])
    _ = machine.next()
    machine.finished()
    #expect(machine.room(in: ["Note": 2]) == ["Note": 1])
    _ = machine.takeUnbegun()
    #expect(machine.room(in: ["Note": 2]) == ["Note": 2])
  }
}
