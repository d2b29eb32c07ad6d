import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// What people are told of tasks without a handler.
@Suite(.virtualTime) struct UnhandledNoticeTests {
  private let clock: VirtualClock
  private let notices = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func queue() -> TaskQueue {
    let notices = notices
    return TaskQueue(
      name: "mail",
      configuration: TaskQueueConfiguration(unhandledNotice: { notices.add($0) }),
      clock: clock
    )
  }

  private func notice(_ name: String) -> String {
    "the queue 'mail' holds tasks that wait: no handler is registered for the name '\(name)'"
  }

  @Test func `a name without a handler is said once, when the queue runs`() async throws {
    let queue = queue()
    for _ in 0..<3 { try await queue.enqueue(name: "lost") }
    try await queue.enqueue(name: "found too late")
    #expect(notices.entries.isEmpty)
    try await queue.runAvailable()
    try await queue.runAvailable()
    #expect(notices.entries == [notice("found too late"), notice("lost")])
  }

  @Test func `a task that is added to a queue that runs is said, whatever else it performs`()
    async throws
  {
    let queue = queue()
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(10)) }
    try await withRunning(queue) {
      try await queue.enqueue(Note("slow"))
      try await clock.sleep(for: .seconds(1))
      try await queue.enqueue(name: "lost")
      try await clock.sleep(for: .seconds(20))
      #expect(notices.entries == [notice("lost")])
      try await queue.enqueue(name: "lost")
      try await queue.enqueue(name: "another")
      try await clock.sleep(for: .seconds(1))
      #expect(notices.entries == [notice("lost"), notice("another")])
    }
  }

  @Test func `nothing is said where all tasks have handlers, or a fallback performs them`()
    async throws
  {
    let queue = queue()
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    await queue.registerFallback { _, _ in }
    try await queue.enqueue(name: "any")
    try await queue.runAvailable()
    #expect(notices.entries.isEmpty)
  }

  @Test func `who observes the queue is told by an event instead`() async throws {
    let queue = queue()
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

  @Test func `a type that the name may be a former one of is named`() async throws {
    enum Mail { struct Send: TaskPayload {} }
    let queue = queue()
    await queue.register(Mail.Send.self) { _, _ in }
    try await queue.enqueue(name: "Send")
    try await queue.runAvailable()
    #expect(
      notices.entries == [
        notice("Send")
          + "; if it is a former name of UnhandledNoticeTests.Mail.Send, give that type's "
          + "formerTaskNames \"Send\""
      ]
    )
  }

  @Test func `looks that find nothing new get rarer`() {
    var notice = UnhandledNotice()
    var looks: [Int] = []
    for step in 0..<300 where notice.isDue(attemptCount: 0, now: .seconds(0)) {
      looks.append(step)
      let names = notice.namesToSay(of: [])
      #expect(names.isEmpty)
    }
    #expect(looks == [0, 2, 6, 14, 30, 62, 126, 190, 254])
    for _ in 0..<64 { _ = notice.isDue(attemptCount: 0, now: .seconds(0)) }
    let names = [notice.namesToSay(of: ["a", "b"]), notice.namesToSay(of: ["b", "c"])]
    #expect(names == [["a", "b"], ["c"]])
    let isDue = notice.isDue(attemptCount: 0, now: .seconds(0))
    #expect(isDue)
  }

  @Test func `a worker that has performed something is no reason to look`() {
    var notice = UnhandledNotice()
    let isDueAtFirst = notice.isDue(attemptCount: 0, now: .seconds(0))
    #expect(isDueAtFirst)
    for count in 1..<100 {
      let isDue = notice.isDue(attemptCount: count, now: .seconds(0))
      #expect(!isDue)
    }
    let isDue = notice.isDue(attemptCount: 99, now: .seconds(0))
    #expect(isDue)
  }
}
