import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests warnings about tasks without a handler.
@Suite(.virtualTime) struct MissingHandlerWarningTests {
  private let clock: VirtualClock
  private let notices = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(cancelledRetention: Retention = .none) -> TaskQueue {
    let notices = notices
    return TaskQueue(
      name: "mail",
      configuration: TaskQueueConfiguration(
        cancelledRetention: cancelledRetention,
        notice: { notices.add($0) }
      ),
      clock: clock
    )
  }

  private func noticeText(forName name: String) -> String {
    "the queue 'mail' has waiting tasks: no handler is registered for the name '\(name)'"
  }

  @Test func `a name without a handler is reported once, when the queue runs`() async throws {
    let queue = makeQueue()
    for _ in 0..<3 { try await queue.enqueue(name: "lost") }
    try await queue.enqueue(name: "found too late")
    #expect(notices.entries.isEmpty)
    try await queue.runAvailable()
    try await queue.runAvailable()
    #expect(
      notices.entries == [noticeText(forName: "found too late"), noticeText(forName: "lost")]
    )
  }

  @Test
  func `a task added to a busy queue is reported`()
    async throws
  {
    let queue = makeQueue()
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(10)) }
    try await withRunning(queue) {
      try await queue.enqueue(Note("slow"))
      try await clock.sleep(for: .seconds(1))
      try await queue.enqueue(name: "lost")
      try await clock.sleep(for: .seconds(20))
      #expect(notices.entries == [noticeText(forName: "lost")])
      try await queue.enqueue(name: "lost")
      try await queue.enqueue(name: "another")
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries == [noticeText(forName: "lost"), noticeText(forName: "another")])
    }
  }

  @Test(arguments: [false, true])
  func `a rate limit for a name without a handler is reported once`(hasFallback: Bool)
    async throws
  {
    let notices = notices
    let queue = TaskQueue(
      name: "mail",
      configuration: TaskQueueConfiguration(
        rateLimits: [
          .atMost(1, per: .seconds(1)), .atMost(2, per: .seconds(1), of: Note.self),
          .atMost(3, per: .seconds(1), named: "misspelt"),
        ],
        notice: { notices.add($0) }
      ),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in }
    if hasFallback { await queue.registerFallback { _, _ in } }
    for _ in 0..<2 { try await queue.runAvailable() }
    let notice =
      "a rate limit of the queue 'mail' has no effect: no handler is registered for the name "
      + "'misspelt'"
    #expect(notices.entries == (hasFallback ? [] : [notice]))
  }

  @Test func `no name is reported if all tasks have a handler or a fallback handler`()
    async throws
  {
    let queue = makeQueue()
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    await queue.registerFallback { _, _ in }
    try await queue.enqueue(name: "any")
    try await queue.runAvailable()
    #expect(notices.entries.isEmpty)
  }

  @Test func `the first run without an observer warns, even if an earlier run had one`()
    async throws
  {
    let queue = makeQueue()
    try await queue.enqueue(name: "lost")
    do {
      let events = queue.events
      try await queue.runAvailable()
      withExtendedLifetime(events) {}
    }
    #expect(notices.entries.isEmpty)
    try await queue.runAvailable()
    #expect(notices.entries == [noticeText(forName: "lost")])
  }

  @Test func `a queue with an observer sends an event instead of a warning`() async throws {
    let queue = makeQueue()
    let events = queue.events
    try await queue.enqueue(name: "lost")
    try await queue.runAvailable()
    #expect(notices.entries.isEmpty)
    for await event in events {
      guard case .unhandled(let task, _) = event else { continue }
      #expect(task.name == "lost")
      break
    }
  }

  @Test func `the warning suggests the type that may have had the unhandled name before`()
    async throws
  {
    enum Mail { struct Send: TaskPayload {} }
    let queue = makeQueue()
    await queue.register(Mail.Send.self) { _, _ in }
    try await queue.enqueue(name: "Send")
    try await queue.runAvailable()
    #expect(
      notices.entries == [
        noticeText(forName: "Send")
          + "; if it is a former name of MissingHandlerWarningTests.Mail.Send, give that type's "
          + "formerTaskNames \"Send\""
      ]
    )
  }

  @Test func `a task whose name isn't reported yet causes one lookup`() {
    var warning = MissingHandlerWarning()
    func takeDueCheck() -> Bool { warning.takeDueCheck() }
    #expect(!takeDueCheck())
    warning.makeCheckDue(forName: "a")
    #expect(takeDueCheck())
    #expect(!takeDueCheck())
    let said = [
      warning.takeUnreportedNames(of: ["a", "b"]), warning.takeUnreportedNames(of: ["b", "c"]),
    ]
    #expect(said == [["a", "b"], ["c"]])
    warning.makeCheckDue(forName: "a")
    #expect(!takeDueCheck())
    warning.makeCheckDue(forName: "d")
    warning.makeCheckDue(forName: "a")
    #expect(takeDueCheck())
    warning.makeCheckDue(forName: "e")
    #expect(takeDueCheck())
  }

  @Test
  func `a name without a handler is reported even if an earlier lookup found nothing new`()
    async throws
  {
    let queue = makeQueue()
    try await withRunning(queue) {
      try await queue.enqueue(name: "lost")
      for _ in 0..<10 {
        try await clock.sleep(for: .seconds(1))
        try await queue.enqueue(name: "lost")
      }
      try await clock.sleep(for: .seconds(1))
      try await queue.enqueue(name: "another")
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries == [noticeText(forName: "lost"), noticeText(forName: "another")])
    }
  }

  @Test func `a retained task without a handler is reported when it is restarted`() async throws {
    let queue = makeQueue(cancelledRetention: .forever)
    let task = try await queue.enqueue(name: "lost")
    try await queue.cancel(task.id)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries.isEmpty)
      try await queue.retry(task.id)
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries == [noticeText(forName: "lost")])
    }
  }

  @Test func `a paused task without a handler is reported when it is resumed`() async throws {
    let queue = makeQueue()
    let task = try await queue.enqueue(name: "lost")
    try await queue.pause(task.id)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries.isEmpty)
      try await queue.resume(task.id)
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries == [noticeText(forName: "lost")])
    }
  }
}
