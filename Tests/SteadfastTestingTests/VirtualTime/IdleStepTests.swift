import Testing

@testable import SteadfastTesting

@Suite struct IdleStepTests {
  private struct Situation: Sendable, CustomTestStringConvertible {
    var mode: VirtualTime.Mode = .automatic
    var deadline: Int?
    var target: Int?
    var hasTurn = false
    var isHeld = false
    let step: IdleStep

    var testDescription: String {
      "\(mode) \(deadline as Any) \(target as Any) \(hasTurn) \(isHeld)"
    }
  }

  @Test(arguments: [
    Situation(step: .stuck),
    Situation(mode: .manual, step: .stuck),
    Situation(deadline: 5, step: .wake),
    Situation(mode: .manual, deadline: 5, step: .stuck),
    Situation(target: 5, step: .endAdvance),
    Situation(mode: .manual, target: 5, step: .endAdvance),
    Situation(deadline: 4, target: 5, step: .wake),
    Situation(mode: .manual, deadline: 4, target: 5, step: .wake),
    Situation(deadline: 5, target: 5, step: .wake),
    Situation(deadline: 6, target: 5, step: .endAdvance),
    Situation(mode: .manual, deadline: 6, target: 5, step: .endAdvance),
    Situation(isHeld: true, step: .waitForRealWork),
    Situation(deadline: 4, target: 5, isHeld: true, step: .waitForRealWork),
    Situation(target: 0, isHeld: true, step: .waitForRealWork),
    Situation(mode: .manual, hasTurn: true, step: .takeTurn),
    Situation(deadline: 4, target: 5, hasTurn: true, step: .takeTurn),
    Situation(hasTurn: true, isHeld: true, step: .takeTurn),
  ])
  private func `each situation leads to the expected step`(_ situation: Situation) {
    let step = IdleStep(
      mode: situation.mode,
      firstDeadline: situation.deadline.map { VirtualClock.Instant(offset: .seconds($0)) },
      firstTarget: situation.target.map { VirtualClock.Instant(offset: .seconds($0)) },
      hasTurn: situation.hasTurn,
      isHeld: situation.isHeld
    )
    #expect(step == situation.step)
  }
}
