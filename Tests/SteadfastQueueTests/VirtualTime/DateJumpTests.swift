import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime(.manual), .timeLimit(.minutes(5))) struct DateJumpTests {
  private let time: VirtualTime
  private let log = Log<String>()

  init() throws { time = try #require(VirtualTime.current) }

  private func queue(_ store: some Persistence = InMemoryStore()) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(backoff: .constant(.seconds(600))),
      clock: time.clock
    )
    let (log, clock) = (log, time.clock)
    await queue.register(Note.self) { note, context in
      log.add("\(Int(clock.now.offset / .seconds(1))) s: \(note.text)")
      if note.text == "bad", context.retryCount < 2 { throw Refusal() }
      if note.text == "late", context.retryCount < 1 { throw TaskSnoozed(for: .seconds(600)) }
    }
    return queue
  }

  private func step(hours: Double) {
    time.clock.setDate(time.clock.date + hours * 3600)
  }

  // MARK: While the queue runs

  @Test func `a retry waits no longer than its delay when the clock goes back`() async throws {
    let queue = await queue()
    try await queue.enqueue(Note("bad"))
    try await withRunning(queue) {
      await time.advance(by: .seconds(100))
      step(hours: -5)
      // The queue detects the jump within a minute, and then the delay starts again.
      await time.advance(by: .seconds(660))
      #expect(log.entries.count == 2)
      await time.advance(by: .seconds(600))
    }
    #expect(log.entries.first == "0 s: bad")
    #expect(log.entries.count == 3)
    #expect(try await queue.count == 0)
  }

  @Test func `after the clock went back, a retry waits for its whole delay`() async throws {
    let queue = await queue()
    try await withRunning(queue) {
      await time.advance(by: .seconds(60))
      try await queue.enqueue(Note("good"))
      await time.advance(by: .zero)
      step(hours: -5)
      try await queue.enqueue(Note("bad"))
      await time.advance(by: .seconds(599))
      #expect(log.entries == ["60 s: good", "60 s: bad"])
      await time.advance(by: .seconds(1))
      #expect(log.entries.last == "660 s: bad")
    }
  }

  @Test(arguments: [(-3600.0, -3600.0), (-0.5, 0), (5, 0)])
  func `the cutoff of a pass follows a clock that goes back, but not small steps`(
    step: Double,
    cutoff: Double
  ) throws {
    var machine = WorkMachine(workers: 1)
    machine.begin(.pass(cutoff: .seconds(0)), names: [])
    machine.moveCutoffBack(to: .seconds(step))
    #expect(machine.mode == .pass(cutoff: .seconds(cutoff)))
  }

  @Test func `a task waits for its date after the clock went back in an empty queue`()
    async throws
  {
    let queue = await queue()
    try await queue.enqueue(Note("good"))
    try await queue.runAvailable()
    step(hours: -1)
    #expect(try await queue.runAvailable() == 0)
    try await queue.enqueue(Note("good"), availableDate: time.clock.date + 600)
    #expect(try await queue.runAvailable() == 0)
    await time.advance(by: .seconds(600))
    #expect(try await queue.runAvailable() == 1)
  }

  @Test func `a chosen date does not move when the clock goes back`() async throws {
    let queue = await queue()
    try await queue.enqueue(Note("chosen"), availableDate: time.clock.date + 600)
    try await withRunning(queue) {
      await time.advance(by: .seconds(100))
      step(hours: -1)
      await time.advance(by: .seconds(4099))
      #expect(log.entries == [])
      await time.advance(by: .seconds(60))
      #expect(log.entries.count == 1)
    }
  }

  @Test func `a clock that goes forward makes tasks available within a minute`() async throws {
    let queue = await queue()
    try await queue.enqueue(Note("chosen"), availableDate: time.clock.date + 86_400)
    try await withRunning(queue) {
      await time.advance(by: .seconds(1))
      step(hours: 24)
      await time.advance(by: .seconds(60))
      #expect(log.entries == ["60 s: chosen"])
    }
  }

  @Test func `a clock that steps back and forth by half a second changes nothing`() async throws {
    let queue = await queue()
    try await queue.enqueue(Note("bad"))
    try await withRunning(queue) {
      await time.advance(by: .zero)
      for step in 0..<60 {
        time.clock.setDate(time.clock.date + (step % 2 == 0 ? -0.5 : 0.5))
        await time.advance(by: .seconds(10))
      }
      await time.advance(by: .seconds(60))
    }
    #expect(log.entries == ["0 s: bad", "600 s: bad"])
  }

  // MARK: Between two runs

  @Test func `a retry is not late after a restart with a corrected clock`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "tasks")
      let store = JSONFileStore(at: url)
      let before = await queue(store)
      try await before.enqueue(Note("bad"))
      try await before.enqueue(Note("chosen"), availableDate: time.clock.date + 7200)
      try await before.runAvailable()
      try await store.close()
      step(hours: -240)

      let reopened = JSONFileStore(at: url)
      let after = await queue(reopened)
      #expect(try await after.runAvailable() == 0)
      let dates = try await after.tasks().map(\.availableDate)
      #expect(dates == [time.clock.date + 600, time.clock.date + 240 * 3600 + 7200])
      await time.advance(by: .seconds(600))
      #expect(try await after.runAvailable() == 1)
      try await reopened.close()

      let reread = JSONFileStore(at: url)
      let stored = try await queue(reread).tasks().map(\.availableDate)
      #expect(stored == [time.clock.date + 600, time.clock.date + 240 * 3600 + 6600])
      try await reread.close()
    }
  }

  @Test func `a task without a delay is due even if the clock went back before a restart`()
    async throws
  {
    let store = InMemoryStore()
    try await queue(store).enqueue(Note("good"))
    step(hours: -24)
    #expect(try await queue(store).runAvailable() == 1)
  }

  @Test func `a pass performs the tasks that are due after the clock went back`() async throws {
    let queue = await queue()
    try await queue.enqueue(Note("bad"))
    #expect(try await queue.runAvailable() == 1)
    step(hours: -1)
    #expect(try await queue.runAvailable() == 0)
    await time.advance(by: .seconds(600))
    #expect(try await queue.runAvailable() == 1)
    await time.advance(by: .seconds(600))
    #expect(try await queue.runAvailable() == 1)
  }
}
