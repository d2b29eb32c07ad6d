import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A queue on a file.
struct Session: Sendable {
  let path: String
  let store: JSONFileStore
  private let queue: TaskQueue

  init(path: String, isFlushed: Bool) {
    self.path = path
    store = JSONFileStore(
      at: URL(filePath: path),
      flushing: isFlushed ? .eachBatch : .leftToSystem
    )
    queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        taskDefaults: TaskOptions(maxRetries: 1, usesBackoff: false),
        maxInterruptions: .alwaysRetry,
        abandonedRetention: .forever
      )
    )
  }

  func open() async throws {
    await queue.register(Job.self) { job, context in
      printLine("began \(job.title) \(context.id) \(job.isIntact ? "intact" : "broken")")
      switch job.plan {
      case .succeed: break
      case .failOnce: if context.retryCount == 0 { throw Refusal() }
      case .fail: throw Refusal()
      }
      printLine("performed \(job.title)")
    }
    try await queue.open()
  }

  func close() async throws { try await store.close() }
  func destroy() async throws { try await store.destroy() }

  /// Adds a job, and prints the result.
  @discardableResult
  func enqueue(_ job: Job, uniqueKey: String? = nil) async throws -> EnqueuedTask {
    printLine("submitted \(job.title) \(uniqueKey ?? "-")")
    do {
      let task = try await queue.enqueue(job, uniqueKey: uniqueKey)
      printLine("enqueued \(job.title) \(task.id) \(task.isNew ? "new" : "kept")")
      return task
    } catch {
      printLine("refused \(job.title) \(Fact.word(for: error))")
      throw error
    }
  }

  /// Adds jobs as one batch, of which the store keeps either all jobs or no job.
  private func enqueue(batch jobs: [Job]) async throws -> [EnqueuedTask] {
    printLine("batch \(jobs.map(\.title).joined(separator: " "))")
    for job in jobs { printLine("submitted \(job.title) -") }
    do {
      let tasks = try await queue.enqueue(contentsOf: jobs)
      for (job, task) in zip(jobs, tasks) { printLine("enqueued \(job.title) \(task.id) new") }
      return tasks
    } catch {
      for job in jobs { printLine("refused \(job.title) \(Fact.word(for: error))") }
      throw error
    }
  }

  /// Adds jobs until an insertion fails.
  func enqueueJobs(prefix: String, count: Int, size: Int) async throws {
    for number in 0..<count {
      try await enqueue(Job(title: "\(prefix).\(number)", plan: .succeed, size: size))
    }
  }

  /// Performs the available tasks.
  func performAvailable() async throws { try await queue.runAvailable() }

  /// Prints all tasks.
  func printTasks() async throws {
    var last: TaskID?
    var count = 0
    while true {
      let page = try await queue.tasks(matching: TaskFilter(), after: last)
      for task in page {
        let job = try JSONDecoder().decode(Job.self, from: Data(task.payload.bytes()))
        printLine(
          "task \(task.id) \(job.title) \(task.state.rawValue) \(task.uniqueKey ?? "-") "
            + "\(task.keyRole?.rawValue ?? "-") \(job.isIntact ? "intact" : "broken")"
        )
      }
      count += page.count
      guard let end = page.last else { break }
      last = end.id
    }
    let statistics = try await store.statistics()
    printLine(
      "listed \(count) \(statistics.byteCount) \(statistics.lastCompaction == nil ? "-" : "compacted")"
    )
  }

  // MARK: Work

  /// Adds jobs concurrently while the queue performs jobs, and waits for the outcomes of the jobs.
  func addAndPerformJobs(prefix: String, count: Int) async throws {
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      group.addTask {
        try await withThrowingTaskGroup { producers in
          for producer in 0..<4 {
            producers.addTask { try await addJobs(prefix: prefix, producer: producer, of: count) }
          }
          for try await _ in producers {}
        }
        await queue.shutDown()
      }
      // The first failure cancels the other task.
      for try await _ in group {}
    }
  }

  private func addJobs(prefix: String, producer: Int, of count: Int) async throws {
    var number = producer
    while number < count {
      let job = Job(prefix, number: number)
      if number % 8 == 0 {
        let parts = ["a", "b", "c"].map { Job("\(job.title)\($0)", number: number) }
        for (part, task) in zip(parts, try await enqueue(batch: parts)) {
          try await printOutcome(of: part, task)
        }
      } else {
        let task = try await enqueue(job, uniqueKey: job.uniqueKey(number: number))
        try await printOutcome(of: job, task)
      }
      number += 4
    }
  }

  /// Waits for the outcome of a job that this call has added, and prints that outcome.
  private func printOutcome(of job: Job, _ task: EnqueuedTask) async throws {
    // If the task existed before this call, the call can be too late to learn the outcome.
    guard task.isNew else { return }
    switch try await task.outcome() {
    case .succeeded: printLine("settled \(job.title) succeeded")
    case .abandoned: printLine("settled \(job.title) abandoned")
    case .cancelled: printLine("settled \(job.title) cancelled")
    }
  }
}
