import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct PruningScheduleTests {
  private let configuration = TaskQueueConfiguration(
    succeededRetention: .forever,
    abandonedRetention: Retention(maxCount: 3, maxAge: .seconds(60)),
    cancelledRetention: .none
  )

  private func summaries(of changes: [TaskChange]) -> [String] {
    changes.map { change in
      guard case .broad(.prune(let state, let date, let count, _, _)) = change else {
        return "nonsense"
      }
      let age = date.map { "\(Int($0.timeIntervalSince1970))" } ?? "-"
      return "\(state) before \(age), latest \(count.map(String.init) ?? "-")"
    }
  }

  private func makeSuccess(of number: Int, retains: Bool) -> Settlement {
    let lease = Lease(id: .numbered(number), token: 1)
    return Settlement(
      change: .succeed(lease, at: .seconds(0), retains: retains),
      record: .make(number)
    )
  }

  @Test
  func `a run starts with a pruning, because an earlier configuration may have retained more`() {
    let schedule = PruningSchedule(configuration)
    #expect(
      summaries(of: schedule.prunings(now: .seconds(1000))) == [
        "abandoned before 940, latest 3", "cancelled before -, latest 0",
      ]
    )
  }

  @Test func `tasks that aren't retained don't trigger a pruning`() {
    var schedule = PruningSchedule(configuration)
    var changes: [TaskChange] = []
    for number in 0..<255 {
      for retains in [true, false] {
        let end = makeSuccess(of: number, retains: retains)
        changes += schedule.prunings(after: [end], now: .seconds(1000))
      }
    }
    #expect(changes.isEmpty)
    changes = schedule.prunings(after: [makeSuccess(of: 256, retains: true)], now: .seconds(1000))
    #expect(summaries(of: changes) == ["abandoned before 940, latest 3"])
  }
}
