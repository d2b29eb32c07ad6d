import SteadfastQueue
import Synchronization

/// A task with a minimal payload.
struct Increment: TaskPayload { var number = 1 }

/// A counter that many tasks count down; at zero, the counter resumes a task that waits for it.
final class Countdown: Sendable {
  private let left: Atomic<Int>
  private let end = AsyncStream.makeStream(of: Void.self)

  init(_ count: Int) { left = Atomic(count) }

  /// Whether the counter has reached zero.
  var isOver: Bool { left.load(ordering: .relaxed) <= 0 }

  /// Counts down, and returns whether the counter was above zero.
  @discardableResult
  func countDown() -> Bool {
    let left = left.subtract(1, ordering: .relaxed).newValue
    if left == 0 { end.continuation.finish() }
    return left >= 0
  }

  func waitUntilZero() async { for await _ in end.stream {} }
}

/// The operations that benchmarks use, of a queue of the package or of a hand-made queue.
protocol Subject: Sendable {
  func enqueue(_ task: Increment) async throws
  /// Performs tasks until cancelled.
  func run(_ perform: @escaping @Sendable (Increment) async throws -> Void) async throws
}

/// The queue of the package.
struct Steadfast: Subject {
  let queue: TaskQueue

  init(_ store: some Persistence = InMemoryStore(), workers: Int) {
    queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers)
    )
  }

  func enqueue(_ task: Increment) async throws { try await queue.enqueue(task) }

  func run(_ perform: @escaping @Sendable (Increment) async throws -> Void) async throws {
    await queue.register(Increment.self) { task, _ in try await perform(task) }
    try await queue.run()
  }
}

/// A minimal queue: an actor, an array, and a loop for each worker.
actor HandMade: Subject {
  private let workers: Int
  private var tasks: [Increment] = []
  private var head = 0
  private var hasEnded = false
  private var idle: [CheckedContinuation<Void, Never>] = []

  init(workers: Int) { self.workers = workers }

  func enqueue(_ task: Increment) {
    tasks.append(task)
    idle.popLast()?.resume()
  }

  nonisolated func run(_ perform: @escaping @Sendable (Increment) async throws -> Void) async {
    await withTaskGroup { group in
      for _ in 0..<workers {
        group.addTask { while let task = await self.next() { try? await perform(task) } }
      }
      await withTaskCancellationHandler {
        await group.waitForAll()
      } onCancel: {
        Task { await self.end() }
      }
    }
  }

  private func next() async -> Increment? {
    while head == tasks.count {
      if hasEnded { return nil }
      await withCheckedContinuation { idle.append($0) }
    }
    defer { head += 1 }
    return tasks[head]
  }

  private func end() {
    hasEnded = true
    for continuation in idle { continuation.resume() }
    idle = []
  }
}

/// Enqueues tasks from several producers while the queue performs them.
///
/// Returns when the last task is done.
func performWhileEnqueueing(_ count: Int, by subject: some Subject, producers: Int) async throws {
  let countdown = Countdown(count)
  try await withThrowingTaskGroup { group in
    group.addTask {
      try? await subject.run { _ in
        // The countdown is over, so this task was pending before the measurement, and must remain.
        if !countdown.countDown() { try await ContinuousClock().sleep(for: .seconds(3600)) }
      }
    }
    for producer in 0..<producers {
      group.addTask {
        for number in stride(from: producer, to: count, by: producers) {
          try await subject.enqueue(Increment(number: number))
        }
      }
    }
    await countdown.waitUntilZero()
    group.cancelAll()
    try await group.waitForAll()
  }
}

/// Enqueues this number of tasks from several producers.
func enqueueTasks(_ count: Int, to queue: TaskQueue, producers: Int) async throws {
  try await withThrowingTaskGroup { group in
    for producer in 0..<producers {
      group.addTask {
        for number in stride(from: producer, to: count, by: producers) {
          try await queue.enqueue(Increment(number: number))
        }
      }
    }
    try await group.waitForAll()
  }
}
