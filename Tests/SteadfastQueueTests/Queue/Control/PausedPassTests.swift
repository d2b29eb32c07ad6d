import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Pauses a pass during some of its attempts, and then resumes it.
@Suite(.virtualTime) struct PausedPassTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: some Persistence = InMemoryStore(), workers: Int) -> TaskQueue {
    TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
  }

  @Test func `a resumed pass performs as many tasks at a time as before`() async throws {
    let queue = makeQueue(workers: 4)
    let (running, begun) = (Counter(), Log<Int>())
    await queue.register(Note.self) { [clock] note, _ in
      begun.add(running.add(1))
      defer { running.add(-1) }
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
    }
    try await queue.enqueue(contentsOf: (0..<41).map { Note("\(1 + $0 % 4)") })
    async let attempts = queue.runAvailable()
    try await clock.sleep(for: .milliseconds(500))
    await queue.pause()
    try await clock.sleep(for: .seconds(3))
    let count = begun.count
    await queue.resume()
    #expect(try await attempts == 41)
    #expect(count == 4)
    #expect(begun.entries.dropFirst(count).max() == 4)
  }

  @Test func `a paused pass ends after the attempts under way unless it is resumed`() async throws {
    let queue = makeQueue(workers: 3)
    await queue.register(Note.self) { [clock] note, _ in
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
    }
    try await queue.enqueue(contentsOf: ["1", "5", "3", "1", "1"].map { Note($0) })
    async let attempts = queue.runAvailable()
    try await clock.sleep(for: .milliseconds(500))
    await queue.pause()
    #expect(try await attempts == 3)
    #expect(clock.now.offset == .seconds(5))
    #expect(try await queue.count == 2)
  }

  @Test func `handlers may pause the queue while another pause waits for their attempts to start`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = makeQueue(on: store, workers: 3)
    await queue.register(Note.self) { [clock, log, unowned queue] note, _ in
      if let seconds = Int(note.text) { try await clock.sleep(for: .seconds(seconds)) }
      if note.text == "pauses" { await queue.pause() }
      log.add(note.text)
    }
    let begin = clock.date
    try await queue.enqueue(contentsOf: ["1", "10"].map { Note($0) })
    async let attempts = queue.runAvailable()
    try await clock.sleep(for: .milliseconds(200))
    store.inject(.hang, .afterEffect, times: nil) { $0.kind == .claim }
    // The first pause releases a claimed task. The next pause waits until that task has started.
    try await queue.enqueue(Note("pauses"), availableDate: begin)
    try await store.waitForHeldCalls()
    await queue.pause()
    store.letGo()
    try await clock.sleep(for: .seconds(2))
    try await queue.enqueue(Note("other"), availableDate: begin)
    await queue.resume()
    try await store.waitForHeldCalls()
    async let pause: Void = queue.pause()
    try await clock.sleep(for: .seconds(1))
    store.restore()
    await pause
    #expect(try await attempts == 4)
    #expect(log.entries == ["1", "other", "pauses", "10"])
  }
}
