import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests tasks that were added while the clock was ahead, and wake after the clock was corrected.
@Suite(.virtualTime) struct WokenTaskTests {
  private let test: StepQueue
  private let tokens = Log<TaskToken>()

  init() throws { test = try StepQueue() }

  /// The cause that wakes a task.
  enum Cause: CaseIterable {
    case completion, completionBeforeSuspension, resumption
  }

  /// Makes a queue whose tasks fail once and then wait for a completion.
  private func makeQueue(on store: any Persistence, wokenBy cause: Cause) async -> TaskQueue {
    await test.makeQueue(on: store) { [test, tokens] _, context in
      if context.retryCount == 0 { throw Refusal() }
      do {
        test.log.add("begin")
        let value = try await context.completion("upload", of: String.self) { tokens.add($0) }
        test.log.add(value)
      } catch let error as TaskSuspended {
        if cause == .completionBeforeSuspension, let token = tokens.entries.first {
          _ = try await context.queue.results.complete(token, with: "etag")
        }
        throw error
      }
    }
  }

  @Test(arguments: StoreKind.allCases, Cause.allCases)
  func `a task that has failed and then woken is available even with a creation date in the future`(
    kind: StoreKind,
    cause: Cause
  ) async throws {
    try await kind.withStore { store in
      // In a shared store, dates come from several clocks, so they aren't adjusted.
      guard store.sharing == nil else { return }
      let queue = await makeQueue(on: store, wokenBy: cause)
      let task = try await queue.enqueue(Note("a"))
      test.clock.setDate(test.clock.date - 86_400)
      try await queue.runAvailable()
      test.clock.advance(by: .seconds(60))
      try await queue.runAvailable()
      switch cause {
      case .completion:
        let isFirst = try await queue.complete(tokens.entries[0], with: "etag")
        #expect(isFirst)
      case .completionBeforeSuspension: break
      case .resumption:
        let isPaused = try await queue.pause(task.id)
        let isResumed = try await queue.resume(task.id)
        #expect(isPaused && isResumed)
      }
      try await queue.runAvailable()
      let values = cause == .resumption ? [] : ["etag"]
      #expect(test.log.entries == ["begin", "begin"] + values)
    }
  }

  @Test func `when a queue wakes another queue's task, the other queue checks its dates`()
    async throws
  {
    let group = TaskQueueGroup(persistence: InMemoryStore(), clock: test.clock)
    let first = try await group.addQueue("first")
    let second = try await group.addQueue("second")
    await first.register(Note.self) { [test, tokens] _, context in
      test.log.add(try await context.completion("upload", of: String.self) { tokens.add($0) })
    }
    try await first.enqueue(Note("a"))
    test.clock.setDate(test.clock.date - 86_400)
    try await first.runAvailable()
    #expect(try await second.complete(tokens.entries[0], with: "etag"))
    try await first.runAvailable()
    #expect(test.log.entries == ["etag"])
  }
}
