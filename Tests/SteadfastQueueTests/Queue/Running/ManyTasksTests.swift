import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// A store in memory that counts its claims and the tasks that it returns.
private final class CountingStore: ForwardingStore {
  struct Work: Equatable {
    var claims = 0
    var handedOut = 0
    var listed = 0
  }

  let base: any Persistence = InMemoryStore()
  private let counted = Mutex(Work())
  var appliesAtOnce: Bool { true }
  var work: Work { counted.withLock { $0 } }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await base.claim(request)
    counted.withLock { work in
      work.claims += 1
      work.handedOut += claim.tasks.count
    }
    return claim
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    let tasks = try await base.tasks(
      matching: filter,
      after: id,
      limit: limit,
      newestFirst: newestFirst
    )
    counted.withLock { $0.listed += tasks.count }
    return tasks
  }
}

@Suite struct ManyTasksTests {
  @Test
  func `an urgent task precedes 90,000 tasks of lower priority and 10,000 tasks of the far future`()
    async throws
  {
    let clock = VirtualClock()
    let store = CountingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    let log = Log<String>()
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      queue.beginShutDown()
    }
    let year = 365.0 * 86_400
    try await queue.enqueue(
      contentsOf: (0..<10_000).lazy.map { Note("future \($0)") },
      options: TaskOptions(availableDate: clock.date + year, priority: .high)
    )
    try await queue.enqueue(contentsOf: (0..<90_000).lazy.map { Note("lesser \($0)") })
    try await queue.enqueue(Note("now"), priority: .high)
    try await queue.run()
    #expect(log.entries == ["now"])
    #expect(store.work == CountingStore.Work(claims: 1, handedOut: 1, listed: 0))
    #expect(clock.now.offset == .zero)
    #expect(try await queue.count == 100_000)
  }
}
