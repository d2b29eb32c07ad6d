import Foundation
import SteadfastTesting
import TestSupport
import Testing

@Suite struct HistoryCheckTests {
  @Test(arguments: HistoryExample.all)
  func `a check finds exactly the broken promise`(example: HistoryExample) {
    let report = example.history.check(example.expectations)
    #expect(report.broken == (example.isLegal ? [] : [example.promise]), "\(report)")
  }

  @Test func `each promise has a legal and an illegal example`() {
    for promise in History.Promise.allCases {
      let examples = HistoryExample.all.filter { $0.promise == promise }
      #expect(Set(examples.map(\.isLegal)) == [true, false], "\(promise)")
    }
  }

  @Test func `a violation shows its tasks and its lines`() throws {
    var script = HistoryScript()
    script.insert(1)
    script.claim("p1", 1, lease: 1)
    script.pass(30)
    script.claim("p2", 1, lease: 2, interruptions: 1)
    script.succeed("p1", 1, lease: 1)
    let report = History(script.lines).check()
    let violation = try #require(report.violations.first)
    #expect(violation.tasks == [HistoryScript.id(1)])
    // Both claims, and the end that used the earlier lease.
    let places = violation.lines.map { String($0.prefix { $0 != "{" }) }
    #expect(places == [4, 6, 7, 8].map { "history:\($0): " })
    #expect(violation.lines[1].contains(#""lease":2"#))
    #expect("\(report)".contains("H3: \(History.Promise.oneEnd.sentence)"))
    #expect(!report.passes)
  }

  @Test func `a promise that can't be checked is skipped with a reason`() {
    var script = HistoryScript()
    script.insert(1)
    let report = History(script.lines).check(History.Expectations(endsWithin: .seconds(1)))
    #expect(report.passes)
    #expect(report.skipped.map(\.promise) == [.nothingIsLost, .limitsHold, .everythingEnds])
    #expect("\(report)".contains("not checked: H1, no process has recorded"))
  }

  @Test func `calls of two processes with one name are distinguished by file`() async throws {
    try await withTemporaryFolder { folder in
      var (first, second) = (HistoryScript(), HistoryScript())
      // The first process is killed before the response about its task arrives.
      first.insert(1, .none)
      second.pass(10)
      second.insert(2)
      second.claim("p1", 1, lease: 1)
      second.succeed("p1", 1, lease: 1)
      second.remain([2: "waiting"])
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

  @Test func `a report counts many violations of one promise`() {
    var script = HistoryScript()
    for number: UInt64 in 1...12 { script.insert(number) }
    script.remain()
    let report = History(script.lines).check()
    #expect(report.violations.count == 12)
    #expect("\(report)".contains("H1: and 2 more"))
  }

  @Test func `a report counts rare paths`() {
    var script = HistoryScript()
    // A lease expires during its attempt, and an unanswered end was applied.
    script.insert(1)
    script.claim("p1", 1, lease: 1)
    let attempt = script.begin("p1", 1, lease: 1)
    script.pass(30)
    script.claim("p2", 1, lease: 2, interruptions: 1)
    script.end("p1", attempt)
    // An attempt starts with an expired lease.
    script.end("p1", script.begin("p1", 1, lease: 1))
    script.succeed("p2", 1, lease: 2, .unanswered)
    script.succeed("p2", 1, lease: 2, .stale)
    // An insertion and an end that were not applied.
    script.insert(2, .unanswered)
    script.insert(3)
    script.claim("p1", 3, lease: 1)
    script.succeed("p1", 3, lease: 1, .unanswered)
    script.succeed("p1", 3, lease: 1)
    // Two last tasks of a batch.
    script.insert(9)
    for number: UInt64 in 4...5 {
      script.insert(number, follower: 9)
      script.claim("p1", number, lease: number)
    }
    let calls = (4...5).map { number in
      script.ask(
        "p\(number)",
        [HistoryChange(.succeed, task: HistoryScript.id(UInt64(number)), lease: UInt64(number))]
      )
    }
    for (number, call) in calls.enumerated() { script.answer("p\(number + 4)", call) }
    script.remain([9: "waiting"])
    let report = History(script.lines).check()
    #expect(report.passes, "\(report)")
    #expect(report.rarePaths.lostLeases == 1)
    #expect(report.rarePaths.unansweredButDone == 1)
    #expect(report.rarePaths.unansweredAndNotDone == 2)
    #expect(report.rarePaths.closeLastMembers == 1)
    #expect(report.rarePaths.lateBegins == 1)
  }
}
