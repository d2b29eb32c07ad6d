import Testing

@testable import SteadfastQueue

@Suite struct RunBudgetTests {
  private func makeBudget(times: [String: Int]) -> RunBudget {
    var known = RunTimes()
    for (name, seconds) in times { known.add(.seconds(seconds), of: name) }
    return RunBudget(deadline: .seconds(30), times: known)
  }

  @Test func `the budget admits tasks that are expected to end before the deadline`() {
    var budget = makeBudget(times: ["a": 10, "b": 20])
    let limits = ["a": 3, "b": 3, "new": 3]
    #expect(budget.claimLimits(from: limits, at: .seconds(15)) == ["a": 3, "b": 0, "new": 3])
    #expect(budget.namesTooLong == ["b"])
    #expect(budget.claimLimits(from: limits, at: .seconds(25)) == ["a": 0, "b": 0, "new": 3])
    #expect(budget.namesTooLong == ["b"])
  }

  @Test(arguments: [30, 31])
  func `at and after the deadline, no task is admitted, and no name is marked as too long`(now: Int)
  {
    var budget = makeBudget(times: ["a": 0, "b": 20])
    let none = ["a": 0, "b": 0, "new": 0]
    #expect(budget.claimLimits(from: ["a": 3, "b": 3, "new": 3], at: .seconds(now)) == none)
    #expect(budget.namesTooLong.isEmpty)
  }

  @Test
  func `an attempt that is cut short counts as twice its duration, and as at least the average`() {
    var budget = makeBudget(times: ["a": 8, "b": 1])
    for name in ["a", "b", "new"] {
      budget.addRunTime(.seconds(2), of: name, wasCutShort: true, at: .seconds(30))
    }
    // The first attempt isn't cut short. The second is cut short before the deadline.
    budget.addRunTime(.seconds(2), of: "a", wasCutShort: false, at: .seconds(30))
    budget.addRunTime(.seconds(2), of: "a", wasCutShort: true, at: .seconds(29))
    #expect(budget.measured.map(\.name) == ["a", "b", "new", "a"])
    #expect(budget.measured.map(\.time) == [8, 4, 4, 2].map { .seconds($0) })
  }
}
