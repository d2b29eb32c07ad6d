import Foundation
import SteadfastTesting
import TestSupport
import Testing

@Suite struct HistoryCheckTests {
  @Test(arguments: HistoryExample.all)
  func `a check reports exactly the promise that an example breaks`(example: HistoryExample) {
    let report = example.history.check(example.expectations)
    #expect(report.broken == (example.isLegal ? [] : [example.promise]), "\(report)")
  }

  @Test func `each promise has a legal and an illegal example`() {
    for promise in History.Promise.allCases {
      let examples = HistoryExample.all.filter { $0.promise == promise }
      #expect(Set(examples.map(\.isLegal)) == [true, false], "\(promise)")
    }
  }

  @Test func `a violation lists the affected tasks and the lines that show the violation`() throws {
    var script = HistoryScript()
    script.insertTask(1)
    script.claim(by: "p1", task: 1, lease: 1)
    script.advanceDate(by: 30)
    script.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    script.succeed(by: "p1", task: 1, lease: 1)
    let report = History(script.lines).check()
    let violation = try #require(report.violations.first)
    #expect(violation.tasks == [HistoryScript.id(1)])
    // The responses to both claims, and the request and response of the end with the earlier lease.
    let places = violation.lines.map { String($0.prefix { $0 != "{" }) }
    #expect(places == [4, 6, 7, 8].map { "history:\($0): " })
    #expect(violation.lines[1].contains(#""lease":2"#))
    #expect("\(report)".contains("H3: \(History.Promise.oneEnd.sentence)"))
    #expect(!report.passes)
  }

  @Test func `a promise that can't be checked is skipped with a reason`() {
    var script = HistoryScript()
    script.insertTask(1)
    let report = History(script.lines).check(History.Expectations(endsWithin: .seconds(1)))
    #expect(report.passes)
    #expect(report.skipped.map(\.promise) == [.nothingIsLost, .limitsHold, .everythingEnds])
    #expect("\(report)".contains("not checked: H1, no process has recorded"))
  }

  @Test func `calls of two processes with the same name are distinguished by their files`()
    async throws
  {
    try await withTemporaryFolder { folder in
      var (first, second) = (HistoryScript(), HistoryScript())
      // The first process is killed before the response about its task arrives.
      first.insertTask(1, answer: .none)
      second.advanceDate(by: 10)
      second.insertTask(2)
      second.claim(by: "p1", task: 1, lease: 1)
      second.succeed(by: "p1", task: 1, lease: 1)
      second.recordRemainingTasks([2: "waiting"])
      let files = try [first, second].enumerated().map { number, script in
        let machine = folder.appending(path: "m\(number)")
        try FileManager.default.createDirectory(at: machine, withIntermediateDirectories: true)
        let lines = try script.lines.map { try JSONEncoder().encode($0) + Data("\n".utf8) }
        let file = machine.appending(path: "p1.jsonl")
        try Data(lines.joined()).write(to: file)
        return file
      }
      let report = try History(contentsOf: files).check()
      #expect(report.passes, "\(report)")
      #expect(report.taskCount == 2)
    }
  }

  @Test func `a report lists some violations of a promise, and counts the others`() {
    var script = HistoryScript()
    for number: UInt64 in 1...12 { script.insertTask(number) }
    script.recordRemainingTasks()
    let report = History(script.lines).check()
    #expect(report.violations.count == 12)
    #expect("\(report)".contains("H1: and 2 more"))
  }

  @Test func `a report counts rare events`() {
    var script = HistoryScript()
    // A lease expires during its attempt, and an unanswered end was applied.
    script.insertTask(1)
    script.claim(by: "p1", task: 1, lease: 1)
    let attempt = script.beginAttempt(by: "p1", task: 1, lease: 1)
    script.advanceDate(by: 30)
    script.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    script.endAttempt(by: "p1", attempt)
    // An attempt starts with an expired lease.
    script.endAttempt(by: "p1", script.beginAttempt(by: "p1", task: 1, lease: 1))
    script.succeed(by: "p2", task: 1, lease: 2, answer: .unanswered)
    script.succeed(by: "p2", task: 1, lease: 2, answer: .stale)
    // An insertion and an end that were not applied.
    script.insertTask(2, answer: .unanswered)
    script.insertTask(3)
    script.claim(by: "p1", task: 3, lease: 1)
    script.succeed(by: "p1", task: 3, lease: 1, answer: .unanswered)
    script.succeed(by: "p1", task: 3, lease: 1)
    // Two last tasks of a batch.
    script.insertTask(9)
    for number: UInt64 in 4...5 {
      script.insertTask(number, follower: 9)
      script.claim(by: "p1", task: number, lease: number)
    }
    let calls = (4...5).map { number in
      script.request(
        [HistoryChange(.succeed, task: HistoryScript.id(UInt64(number)), lease: UInt64(number))],
        by: "p\(number)"
      )
    }
    for (number, call) in calls.enumerated() { script.answer(call: call, of: "p\(number + 4)") }
    script.recordRemainingTasks([9: "waiting"])
    let report = History(script.lines).check()
    #expect(report.passes, "\(report)")
    #expect(report.rarePaths.lostLeases == 1)
    #expect(report.rarePaths.unansweredButDone == 1)
    #expect(report.rarePaths.unansweredAndNotDone == 2)
    #expect(report.rarePaths.closeLastMembers == 1)
    #expect(report.rarePaths.lateBegins == 1)
  }
}
