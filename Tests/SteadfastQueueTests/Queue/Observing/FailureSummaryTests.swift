import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct FailureSummaryTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test(arguments: [
    ("", ""), ("  no\n\troute ", "no route"),
    ("no route to 10.0.0.7:5432 after 31 s", "no route to #.#.#.#:# after # s"),
    ("the task 550e8400-e29b-41d4-a716-446655440000 is gone", "the task # is gone"),
    ("commit 9f86d081884c is bad, not abcdef", "commit # is bad, not abcdef"),
    ("key 'a b' is \"taken\" by “x”", "key '…' is \"…\" by “…”"),
    ("it isn't there, and won't be", "it isn't there, and won't be"),
    ("an open 'quote", "an open 'quote"),
    ("can't read /var/tmp/x-17.json: no such file", "can't read … no such file"),
    ("GET https://a.example.com:443/v1/7?q=1 failed", "GET https://a.example.com:#/… failed"),
    ("mail to jo.7@example.com bounced", "mail to … bounced"),
    ("0x1F at utf8, 1.5e3 and -12", "# at utf#, #.#e# and -#"),
    ("0x600003d5c000, 0xCAFE, 0xyz and AAAAAAAA1z", "#, #, #xyz and AAAAAAAA#z"),
    ("a/b and km/h", "a/b and km/h"),
  ])
  func `a shape has no numbers, addresses, paths and quotations`(text: String, shape: String) {
    #expect(FailureShape(of: text).description == shape)
  }

  @Test func `a shape is as short for a long text, and its ID never changes`() {
    let long = FailureShape(of: String(repeating: "word ", count: 10_000))
    #expect(long.description.unicodeScalars.count == 200)
    #expect(long == FailureShape(of: String(repeating: "word  ", count: 20_000)))
    #expect(FailureShape(of: "").id == "cbf29ce484222325")
    #expect(FailureShape(of: "a").id == "af63dc4c8601ec8c")
    #expect(FailureShape(of: "no route to 1").id == FailureShape(of: "no route to 22").id)
  }

  @Test func `a failure says how the attempt failed, how long it took and who made it`()
    async throws
  {
    let store = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5)))
    let queue = TaskQueue(
      name: "mails",
      persistence: store.process(),
      configuration: TaskQueueConfiguration(abandonedRetention: .forever, programVersion: "2"),
      clock: clock
    )
    await queue.register(Note.self) { [clock] note, _ in
      try await clock.sleep(for: .seconds(3))
      throw Refusal(note.text)
    }
    let tasks = [
      try await queue.enqueue(Note("a"), maxRetries: 1),
      try await queue.enqueue(
        Note("b"),
        maxRetries: 0,
        options: TaskOptions(timeLimit: .seconds(2))
      ),
      try await queue.enqueue(
        Note("c"),
        delay: .milliseconds(500),
        options: TaskOptions(expiryDate: clock.date + 1)
      ),
    ]
    try await clock.sleep(for: .seconds(1))
    try await withRunning(queue) { try await clock.sleep(for: .seconds(200)) }
    let records = try await queue.tasks(matching: TaskFilter(ids: Set(tasks.map(\.id))))
    let attempts = records.map(\.failedAttempt)
    #expect(attempts.map { $0?.kind } == [.failed, .timedOut, .expired])
    #expect(attempts.map { $0?.duration } == [.seconds(3), .seconds(2), nil])
    #expect(attempts.prefix(2).allSatisfy { $0?.holder.hasSuffix(" mails 2") == true })
    #expect(attempts[2]?.holder == "")
    #expect(records[0].failures.map { $0.attempt?.duration } == [.seconds(3), .seconds(3)])
  }

  @Test(arguments: [
    FailedAttempt(.failed), FailedAttempt(.parked, duration: .zero),
    FailedAttempt(.timedOut, duration: .microseconds(31), holder: "a b c 1.2"),
    FailedAttempt(.interrupted, duration: .seconds(-1)), FailedAttempt(.expired, holder: "é"),
  ])
  func `the text of an attempt has all of its properties`(attempt: FailedAttempt) {
    let copy = FailedAttempt(text: attempt.text)
    #expect(copy == attempt)
    #expect(copy.kind == attempt.kind && copy.kind != nil)
    #expect(copy.duration == attempt.duration && copy.holder == attempt.holder)
  }

  @Test func `a text of another version is kept`() {
    let attempt = FailedAttempt(text: "lost 7 web")
    #expect(attempt.kind == nil && attempt.duration == .microseconds(7))
    #expect(attempt.holder == "web" && attempt.text == "lost 7 web")
    #expect(FailedAttempt(text: "").kind == nil && FailedAttempt(text: "").holder.isEmpty)
  }

  @Test func `a long text has a shape as soon as a short one, whatever it consists of`() {
    for part in ["A", "1a", "“", "0x", "a1-", "::", "é"] {
      let text = String(repeating: part, count: 1_000_000)
      #expect(FailureShape(of: text) == FailureShape(of: text + text))
    }
    #expect(FailureShape(of: "é") != FailureShape(of: "e\u{301}"))
  }

  @Test func `more tasks than a page has are all looked at, and their dates are kept`() async throws
  {
    let queue = TaskQueue(
      persistence: InMemoryStore(),
      configuration: TaskQueueConfiguration(abandonedRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { note, _ in throw Refusal(note.text) }
    let start = clock.date
    for part in 0..<2 {
      for number in 0..<600 {
        let limit: RetryLimit = number < 550 ? 0 : .alwaysRetry
        try await queue.enqueue(Note("busy \(part * 1_000 + number)"), maxRetries: limit)
      }
      _ = try await queue.runAvailable()
      clock.advance(by: .milliseconds(1))
    }
    let summary = try await queue.failures()
    #expect(summary.isWhole && summary.taskCount == 1_200 && summary.groups.count == 1)
    let group = try #require(summary.groups.first)
    #expect(group.abandonedCount == 1_100 && group.unfinishedCount == 100)
    #expect(group.samples.count == 3 && group.firstDate == start && group.lastDate > start)
    #expect(group.reason.contains("busy 1"))
    let later = try await queue.failures(since: group.lastDate)
    #expect(later.taskCount == 600 && later.groups.first?.firstDate == group.lastDate)
    let part = try await queue.failures(limit: 1_100)
    #expect(!part.isWhole && part.groups.first?.unfinishedCount == 0)
    #expect(try await queue.failures(limit: 1_200).isWhole)
  }

  @Test func `failures are grouped by their shapes, the most frequent ones first`() async throws {
    let queue = TaskQueue(
      persistence: InMemoryStore(),
      configuration: TaskQueueConfiguration(abandonedRetention: .forever),
      clock: clock
    )
    await queue.register(Note.self) { note, _ in throw Refusal(note.text) }
    let texts = ["busy 1", "busy 2", "busy 3", "gone '1'", "gone '2'"]
    var tasks: [EnqueuedTask] = []
    for (index, text) in texts.enumerated() {
      let options: RetryLimit = index == 4 ? .alwaysRetry : 0
      tasks.append(try await queue.enqueue(Note(text), maxRetries: options))
    }
    try await queue.enqueue(Note("later"), delay: .seconds(1000))
    _ = try await queue.runAvailable()
    let summary = try await queue.failures()
    #expect(summary.isWhole && summary.taskCount == 5)
    #expect(summary.groups.map(\.count) == [3, 2])
    #expect(summary.groups.map(\.abandonedCount) == [3, 1])
    #expect(summary.groups.map(\.unfinishedCount) == [0, 1])
    #expect(summary.groups.map(\.names) == [["Note": 3], ["Note": 2]])
    #expect(summary.groups[0].shape == FailureShape(of: Refusal("busy 9").description))
    #expect(summary.groups[1].samples == [tasks[3].id, tasks[4].id])
    let two = try await queue.failures(limit: 2)
    #expect(!two.isWhole && two.taskCount == 2)
    let none = try await queue.failures(limit: -1)
    #expect(!none.isWhole && none.taskCount == 0 && none.groups.isEmpty)
    #expect(try await queue.failures(since: clock.date + 1).groups.isEmpty)
  }
}
