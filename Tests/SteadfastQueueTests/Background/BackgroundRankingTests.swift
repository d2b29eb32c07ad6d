import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct BackgroundRankingTests {
  private let now = Date(timeIntervalSinceReferenceDate: 1_000_000)

  private func candidate(
    _ priority: BackgroundPriority,
    _ ago: Double?,
    since: Double? = nil,
    takes seconds: Int = 1
  ) -> BackgroundRanking.Candidate {
    BackgroundRanking.Candidate(
      priority: priority,
      averageDuration: .seconds(seconds),
      lastRun: ago.map { now - $0 },
      since: since.map { now - $0 }
    )
  }

  /// The durations of the tasks in order of rank, the budget, and the indices of the tasks to run.
  @Test(arguments: [
    // The example of the original library, Selene: tasks with the scores 3, 2 and 1.
    ([20, 5, 10], 30, [0, 1]),
    ([20, 10, 5], 30, [0, 1]),
    ([20, 15, 10], 30, [0, 2]),
    ([30, 1, 1], 30, [0]),
    ([29, 2, 1], 30, [0, 2]),
    ([31, 1, 1], 30, [0]),
    ([1, 31, 1], 30, [0, 2]),
    ([1, 1, 1], 3, [0, 1, 2]),
    ([1, 1, 1], 2, [0, 1]),
    ([0, 0, 1], 1, [0, 1, 2]),
    ([0, 1, 1], 0, []),
    ([0, 1, 1], -1, []),
  ])
  func `tasks run in order of rank if they fit the budget`(
    durations: [Int],
    budget: Int,
    chosen: [Int]
  ) {
    #expect(
      BackgroundRanking.indicesThatFit(
        Array(durations.indices),
        durations: durations.map { .seconds($0) },
        within: .seconds(budget)
      ) == chosen
    )
  }

  @Test func `the score is the normalised priority × the normalised time since the last run`() {
    let ranking = BackgroundRanking(
      [candidate(.veryHigh, 60), candidate(.normal, 600), candidate(.veryLow, 300)],
      now: now
    )
    #expect(ranking.scores == [0.1, 0.6, 0.1])
    #expect(ranking.order == [1, 0, 2])
    #expect(ranking.selection(within: .seconds(2)) == [1, 0])
  }

  @Test func `a task that never ran has the highest score of its priority`() {
    let ranking = BackgroundRanking(
      [candidate(.low, 600), candidate(.low, nil), candidate(.low, 599)],
      now: now
    )
    #expect(ranking.order == [1, 0, 2])
    #expect(ranking.scores[0] == ranking.scores[1])
  }

  @Test func `the score of a task that never ran rises with each pass`() {
    let fresh = BackgroundRanking(
      [candidate(.veryHigh, 60), candidate(.veryLow, nil, since: 60)],
      now: now
    )
    #expect(fresh.order == [0, 1])
    let later = BackgroundRanking(
      [candidate(.veryHigh, 60), candidate(.veryLow, nil, since: 301)],
      now: now
    )
    #expect(later.order == [1, 0])
  }

  @Test func `a last run in the future counts as never having run`() {
    let ranking = BackgroundRanking([candidate(.normal, 10), candidate(.normal, -1e9)], now: now)
    #expect(ranking.order == [0, 1] && ranking.scores == [0.6, 0.6])
  }

  @Test func `if all tasks have just run, the priorities decide the order`() {
    let ranking = BackgroundRanking(
      [candidate(.low, 0), candidate(.high, 0), candidate(.high, 0)],
      now: now
    )
    #expect(ranking.order == [1, 2, 0])
  }

  @Test func `a ranking of no tasks is empty`() {
    let ranking = BackgroundRanking([], now: now)
    #expect(ranking.order == [] && ranking.selection(within: .seconds(30)) == [])
  }
}

@Suite struct BackgroundHistoryTests {
  private let date = Date(timeIntervalSince1970: 1_700_000_000)

  @Test func `a history is the same after it was written and read`() throws {
    var history = BackgroundHistory()
    history.recordStart(of: ["a"], registered: ["a", "\"é\"/"], at: date, isPass: true)
    history.recordRun(of: "a", lasting: .milliseconds(1_500), averaging: 3)
    let read = BackgroundHistory(try history.bytes(keeping: []))
    #expect(read == history)
    #expect(read.lastRun(of: "a") == date)
    #expect(read.lastRun(of: "\"é\"/") == nil && read.firstPass(with: "\"é\"/") == date)
    #expect(read.averageDuration(of: "a") == .milliseconds(1_500))
    #expect(read.earliestNextPass(interval: .seconds(5), now: date) == date + 5)
    #expect(read.earliestNextPass(interval: .seconds(5), now: date - 1) == nil)
  }

  @Test(arguments: ["", "[]", "{}", "{\"tasks\":{\"a\":{\"durations\":[-1e300]}}}", "\u{0}"])
  func `invalid bytes are read as an empty history`(text: String) {
    let history = BackgroundHistory(Array(text.utf8))
    #expect(history.lastRun(of: "a") == nil)
    #expect(history.averageDuration(of: "a") ?? .zero == .zero)
  }

  @Test func `a history that is too large drops unregistered tasks, starting with the oldest`()
    throws
  {
    var history = BackgroundHistory()
    for index in 0..<100 {
      history.recordStart(
        of: ["task \(index)"],
        registered: [],
        at: date + Double(index),
        isPass: false
      )
    }
    let full = try history.bytes(keeping: ["task 0"]).count
    let read = BackgroundHistory(try history.bytes(keeping: ["task 0"], limit: full - 1))
    #expect(read.tasks.count == 99)
    #expect(read.lastRun(of: "task 0") != nil && read.lastRun(of: "task 1") == nil)
    let one = BackgroundHistory(try history.bytes(keeping: ["task 0"], limit: 90))
    #expect(one.tasks.count == 1 && one.lastRun(of: "task 0") != nil)
  }
}
