import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests the expiry dates of restarted tasks.
@Suite(.virtualTime) struct ExpiryTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: any Persistence) -> TaskQueue {
    TaskQueue(persistence: store, clock: clock)
  }

  @Test(arguments: StoreKind.allCases)
  func `restarting an expired task performs it`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = makeQueue(on: store)
      let log = Log<String>()
      await queue.register(Note.self) { note, _ in log.add(note.text) }
      let task = try await queue.enqueue(
        Note("late"),
        options: TaskOptions(expiryDate: clock.date + 60)
      )
      try await clock.sleep(for: .seconds(3_600))
      try await queue.runAvailable()
      #expect(log.entries == [])
      #expect(try await queue.retry(matching: .deadLetters) == 1)
      #expect(try await queue.tasks().map(\.expiryDate) == [nil])
      try await queue.runAvailable()
      #expect(log.entries == ["late"])
      #expect(try await task.outcome() == .succeeded)
    }
  }

  @Test func `a removed expiry date remains removed after a restart of the process`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let store = JSONFileStore(at: url)
      let first = makeQueue(on: store)
      await first.register(Note.self) { _, _ in Issue.record("an expired task was performed") }
      try await first.enqueue(Note("late"), options: TaskOptions(expiryDate: clock.date + 60))
      try await clock.sleep(for: .seconds(3_600))
      try await first.runAvailable()
      #expect(try await first.retry(matching: .deadLetters) == 1)
      try await store.close()

      let reopened = JSONFileStore(at: url)
      let second = makeQueue(on: reopened)
      let log = Log<String>()
      await second.register(Note.self) { note, _ in log.add(note.text) }
      try await second.runAvailable()
      #expect(log.entries == ["late"])
      try await reopened.close()
    }
  }

  @Test func `restarting a task doesn't remove an expiry date in the future`() async throws {
    let queue = makeQueue(on: InMemoryStore())
    await queue.register(Note.self) { _, _ in throw TaskAbandoned("x") }
    let expiry = clock.date + 3_600
    try await queue.enqueue(Note("early"), options: TaskOptions(expiryDate: expiry))
    try await queue.runAvailable()
    #expect(try await queue.retry(matching: .deadLetters) == 1)
    #expect(try await queue.tasks().map(\.expiryDate) == [expiry.storable])
  }
}
