import Foundation
import Testing

@testable import SteadfastQueue

/// Tests the memory of tasks while changes are staged, but not committed yet.
@Suite struct TaskTableMemoryTests {
  var table = TaskTable()

  private mutating func claimOne() -> Lease { table.claim(1)[0].lease }

  private mutating func begin(_ record: TaskRecord, open: String...) -> Lease {
    table.insert(record)
    let lease = claimOne()
    for name in open { _ = table.apply([.remember(lease, named: name, value: [])]) }
    return lease
  }

  private func suspend(_ lease: Lease) -> TaskChange {
    .suspend(lease, until: .distantFuture, awaiting: ["open"])
  }

  private let complete = TaskChange.complete(.numbered(1), named: "open", value: [7])

  @Test mutating func `a retry doesn't let a duplicate replace a task whose step is still staged`()
  {
    let lease = begin(.make(1, key: "k"))
    _ = table.apply([.insert(.make(2, key: "k"), onDuplicate: .keep)])
    let step = table.stage(.remember(lease, named: "step", value: [1]))
    let retry = table.stage(
      .retry(lease, availableDate: .seconds(9), retryCount: 1, failure: nil)
    )
    #expect([step, retry].map { table.commit($0) } == [.done, .done])
    #expect(table.numbers == [1, 2])
    #expect(table.memory(of: .numbered(1))["step"] == [1])
    #expect(table.brokenInvariants() == [])
  }

  @Test(arguments: [false, true])
  mutating func `a step that is rolled back does not prevent its task from being superseded`(
    isLast: Bool
  ) {
    let lease = begin(.make(1, key: "k"))
    _ = table.apply([.insert(.make(2, key: "k"), onDuplicate: .keep)])
    let steps = ["a", "b"].map { table.stage(.remember(lease, named: $0, value: [1])) }
    table.rollBack(steps[1])
    if isLast { table.rollBack(steps[0]) }
    let retry = table.stage(
      .retry(lease, availableDate: .seconds(9), retryCount: 1, failure: nil)
    )
    if !isLast { table.commit(steps[0]) }
    #expect(table.commit(retry) == (isLast ? .superseded(by: .numbered(2)) : .done))
    #expect(table.memory(of: .numbered(1)).names == (isLast ? [] : ["a"]))
    #expect(table.brokenInvariants() == [])
  }

  @Test(arguments: [false, true])
  mutating func `a completion and a suspension that are both staged wake the task, in either order`(
    suspendsFirst: Bool
  ) {
    let lease = begin(.make(1), open: "open")
    let changes = suspendsFirst ? [suspend(lease), complete] : [complete, suspend(lease)]
    let staged = changes.map { table.stage($0) }
    #expect(staged.map { table.commit($0) } == [.done, .done])
    #expect(table.record(of: .numbered(1))?.state == .waiting)
    #expect(table.claim(1).numbers == [1])
    #expect(table.brokenInvariants() == [])
  }

  @Test mutating func `of two staged completions, the first counts`() {
    _ = begin(.make(1), open: "open")
    let staged = [7, 8].map {
      table.stage(.complete(.numbered(1), named: "open", value: [$0]))
    }
    #expect(staged.map { table.commit($0) } == [.done, .stale])
    #expect(table.memory(of: .numbered(1))["open"] == [7])
  }

  /// A staged change to a suspended task whose wait is then completed.
  enum Control: CaseIterable {
    case cancel, leave, pause, restart, forget, reschedule, update

    var change: TaskChange {
      let target = TaskTarget.unclaimed(.numbered(1))
      return switch self {
      case .cancel: .cancel(target, at: .seconds(1), retains: true)
      case .leave: .cancel(target, at: .seconds(1), retains: false)
      case .pause: .pause(target)
      case .restart: .restart(target, availableDate: .seconds(5))
      case .forget: .restart(target, availableDate: .seconds(5), forgets: true)
      case .reschedule: .reschedule(target, availableDate: .seconds(5))
      case .update: .update(.numbered(1), TaskUpdate(tags: ["t"]))
      }
    }
  }

  @Test(arguments: Control.allCases, [false, true])
  mutating func `a completion after another staged change has the same effect as without staging`(
    control: Control,
    isRolledBack: Bool
  ) {
    let lease = begin(.make(1), open: "open")
    _ = table.apply([suspend(lease)])
    var plain = table
    let held = table.stage(control.change)
    let completion = table.stage(complete)
    if isRolledBack {
      table.rollBack(completion)
      table.rollBack(held)
      #expect(table.record(of: .numbered(1))?.state == .suspended)
    } else {
      let outcomes = [table.commit(held), table.commit(completion)]
      #expect(outcomes == plain.apply([control.change]) + plain.apply([complete]))
      #expect(table.record(of: .numbered(1))?.summary == plain.record(of: .numbered(1))?.summary)
      #expect(table.memory(of: .numbered(1)) == plain.memory(of: .numbered(1)))
    }
    #expect(table.brokenInvariants() == [])
  }

  @Test(arguments: Control.allCases)
  mutating func `a completion that is committed before another staged change takes effect first`(
    control: Control
  ) {
    let lease = begin(.make(1), open: "open")
    _ = table.apply([suspend(lease)])
    var plain = table
    let completion = table.stage(complete)
    let held = table.stage(control.change)
    let completed = table.commit(completion)
    // No claim returns a task with a staged change.
    #expect(table.claim(1).isEmpty)
    let outcomes = [completed, table.commit(held)]
    #expect(outcomes == plain.apply([complete]) + plain.apply([control.change]))
    #expect(table.record(of: .numbered(1))?.summary == plain.record(of: .numbered(1))?.summary)
    #expect(table.memory(of: .numbered(1)) == plain.memory(of: .numbered(1)))
    #expect(table.brokenInvariants() == [])
  }
}
