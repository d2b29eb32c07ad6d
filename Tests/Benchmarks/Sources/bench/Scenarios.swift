import SteadfastQueue
import Synchronization

/// A task that carries next to nothing.
struct Increment: TaskPayload { var number = 1 }

/// Counts down in many tasks, and tells one that waits when it is at zero.
final class Countdown: Sendable {
  private let left: Atomic<Int>
  private let end = AsyncStream.makeStream(of: Void.self)

  init(_ count: Int) { left = Atomic(count) }

  /// Whether nothing is left to count.
  var isOver: Bool { left.load(ordering: .relaxed) <= 0 }

  /// Whether there was anything left to count.
  @discardableResult
  func countDown() -> Bool {
    let left = left.subtract(1, ordering: .relaxed).newValue
    if left == 0 { end.continuation.finish() }
    return left >= 0
  }

  func wait() async { for await _ in end.stream {} }
}

/// What a queue is asked to do in a benchmark, so that a hand-made one can do it too.
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

/// The least that could be called a queue: an actor, an array, and a loop for each worker.
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

/// Several producers enqueue tasks while the queue performs them; returns when the last is done.
func performOverlapped(_ count: Int, by subject: some Subject, producers: Int) async throws {
  let countdown = Countdown(count)
  try await withThrowingTaskGroup { group in
    group.addTask {
      try? await subject.run { _ in
        // One more than was enqueued was there before, and stays.
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
    await countdown.wait()
    group.cancelAll()
    try await group.waitForAll()
  }
}

/// Several producers enqueue tasks.
func enqueue(_ count: Int, to queue: TaskQueue, producers: Int) async throws {
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
