import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Uses a queue from many threads, for the thread sanitizer and for bugs that need real threads.
@Suite struct StressTests {
  private static let producers = 64
  private static let observers = 10

  private struct Tally {
    var performing: Set<TaskID> = []
    var succeeded: Set<TaskID> = []
    var wasTwice = false

    mutating func recordBegin(of id: TaskID) {
      if !performing.insert(id).inserted || succeeded.contains(id) { wasTwice = true }
    }

    mutating func recordEnd(of id: TaskID, succeeds: Bool) {
      performing.remove(id)
      if succeeds { succeeded.insert(id) }
    }
  }

  @Test(arguments: [true, false])
  func `many threads use a queue without losing or repeating a task`(
    appliesAtOnce: Bool
  ) async throws {
    let tally = Mutex(Tally())
    let queue = TaskQueue(
      persistence: GatheringStore(appliesAtOnce: appliesAtOnce),
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 16, backoff: .immediate)
    )
    await queue.register(Note.self) { note, context in
      tally.withLock { $0.recordBegin(of: context.id) }
      context.report(progress: 0.5)
      let fails = note.text == "fails once" && context.retryCount == 0
      let isCancelled = Task.isCancelled
      tally.withLock { $0.recordEnd(of: context.id, succeeds: !fails && !isCancelled) }
      if fails { throw Refusal() }
      try Task.checkCancellation()
    }
    let perProducer = Soak.runs(short: 50)
    try await withRunning(queue) {
      try await withThrowingTaskGroup(of: [TaskOutcome].self) { group in
        for number in 0..<Self.producers {
          group.addTask { try await Self.addTasks(count: perProducer, producer: number, to: queue) }
        }
        try await withThrowingTaskGroup(of: Void.self) { others in
          for _ in 0..<Self.observers { others.addTask { for await _ in queue.events {} } }
          others.addTask { await Self.pauseAndResume(queue) }
          for try await outcomes in group {
            #expect(outcomes.allSatisfy { $0 == .succeeded || $0 == .cancelled })
          }
          others.cancelAll()
        }
      }
    }
    #expect(tally.withLock { !$0.wasTwice && $0.performing.isEmpty })
    #expect(try await queue.count == 0)
    #expect(queue.core.observers.outcomes.count == 0)
    #expect(queue.core.dispatch.machine.withLock { $0.pendingCommands.isEmpty })
  }

  /// Adds tasks, cancels some of them, and returns all outcomes.
  private static func addTasks(
    count: Int,
    producer number: Int,
    to queue: TaskQueue
  ) async throws -> [TaskOutcome] {
    var tasks: [EnqueuedTask] = []
    for index in 0..<count {
      let text = (number + index) % 5 == 0 ? "fails once" : "succeeds"
      let task = try await queue.enqueue(Note(text))
      tasks.append(task)
      switch (number + index) % 7 {
      case 0: try await task.cancel()
      case 1 where try await queue.pause(task.id): _ = try await queue.resume(task.id)
      default: break
      }
    }
    var outcomes: [TaskOutcome] = []
    for task in tasks { outcomes.append(try await task.outcome()) }
    return outcomes
  }

  /// Repeatedly pauses and resumes the queue.
  private static func pauseAndResume(_ queue: TaskQueue) async {
    var count = 0
    for await _ in queue.events {
      count += 1
      guard count % 64 == 0 else { continue }
      await queue.pause()
      _ = try? await queue.statistics
      await queue.resume()
    }
  }
}

/// A store in memory with a configurable `appliesAtOnce`.
private final class GatheringStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  let appliesAtOnce: Bool

  init(appliesAtOnce: Bool) { self.appliesAtOnce = appliesAtOnce }
  func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }
}
