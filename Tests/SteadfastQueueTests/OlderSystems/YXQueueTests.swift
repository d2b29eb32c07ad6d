import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// What YXQueue's README and headers promise.
///
/// Kept otherwise, on purpose: adding a task to a queue that is paused does not resume it.
@Suite(.timeLimit(.minutes(5))) struct YXQueueTests {
  struct Download: TaskPayload {
    var url: String
    var target = "file"
  }

  private struct Upload: TaskPayload { var url: String }

  let log = Log<String>()
  private let gate = Waiters<Void>()

  func queue(concurrency: Int = 1) -> TaskQueue {
    TaskQueue(
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: concurrency,
        abandonedRetention: .none
      ),
      clock: VirtualClock()
    )
  }

  /// A queue whose downloads begin, report half of their progress, and go on when the gate opens.
  private func heldQueue(concurrency: Int = 1) async -> TaskQueue {
    let queue = queue(concurrency: concurrency)
    await queue.register(Download.self) { [gate] _, context in
      context.report(progress: 0.5)
      try await gate.wait { nil }
    }
    return queue
  }

  /// What a delegate would be told.
  private static func callback(_ event: TaskEvent) -> String? {
    switch event {
    case .enqueued: "added"
    case .started: "started"
    case .progressed(_, let fraction): "progress \(fraction)"
    case .failed(_, let reason, _, _): "failed: \(reason)"
    case .succeeded: "finished"
    case .abandoned(_, let reason, _): "gave up: \(reason)"
    case .cancelled: "cancelled"
    case .paused: "paused"
    case .resumed: "resumed"
    case .retried: "retried"
    default: nil
    }
  }

  /// The callbacks up to the last one that is expected.
  private func callbacks(_ events: TaskEvents, until last: String) async -> [String] {
    var told: [String] = []
    for await event in events {
      guard let callback = Self.callback(event) else { continue }
      told.append(callback)
      if callback == last { break }
    }
    return told
  }

  // MARK: Types of jobs

  @Test func `a job has a type, parameters, a tag and the date of its creation`() async throws {
    let queue = queue()
    try await queue.enqueue(
      Download(url: "https://example.com/a.mp4"),
      options: TaskOptions(tags: ["films"])
    )
    let record = try #require(try await queue.tasks(matching: TaskFilter(tags: ["films"])).first)
    #expect(record.name == "YXQueueTests.Download")
    #expect(record.createdDate == queue.now)
    #expect(try record.payload(as: Download.self).url == "https://example.com/a.mp4")
    #expect(try await queue.count(matching: TaskFilter(tags: ["books"])) == 0)
  }

  @Test func `at most 5 downloads run at a time, and other types are not held up by them`()
    async throws
  {
    let queue = queue(concurrency: 8)
    await queue.register(Download.self, maxConcurrentTasks: 5) { [gate] _, _ in
      try await gate.wait { nil }
    }
    await queue.register(Upload.self) { [log] upload, _ in log.add(upload.url) }
    try await queue.enqueue(contentsOf: (1...20).map { Download(url: "\($0)") })
    let upload = try await queue.enqueue(Upload(url: "up"))
    try await withRunning(queue) {
      #expect(try await upload.outcome() == .succeeded)
      let events = queue.events
      var running = try await queue.count(matching: TaskFilter(states: [.running]))
      if running < 5 {
        for await event in events {
          if case .started = event { running += 1 }
          if running == 5 { break }
        }
      }
      // One more upload ends, and still no sixth download has begun.
      #expect(try await queue.enqueue(Upload(url: "up")).outcome() == .succeeded)
      #expect(try await queue.count(matching: TaskFilter(states: [.running])) == 5)
      try await queue.cancelAll()
    }
    #expect(log.entries == ["up", "up"])
  }

  @Test func `a job has a priority among those that wait`() async throws {
    let queue = queue()
    await queue.register(Download.self) { [log] download, _ in log.add(download.url) }
    try await queue.enqueue(Download(url: "low"), priority: .low)
    try await queue.enqueue(Download(url: "high"), priority: .high)
    try await queue.runAvailable()
    #expect(log.entries == ["high", "low"])
  }

  // MARK: Callbacks

  @Test func `start, progress and finish are told to several delegates, once to each`()
    async throws
  {
    let queue = queue()
    await queue.register(Download.self) { _, context in
      context.report(progress: 0.25)
      context.report(progress: 0.75)
    }
    let delegates = [queue.events, queue.events]
    try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    for events in delegates {
      #expect(
        await callbacks(events, until: "finished")
          == ["added", "started", "progress 0.25", "progress 0.75", "finished"]
      )
    }
  }

  @Test func `failure is told with its error`() async throws {
    let queue = queue()
    await queue.register(Download.self) { _, _ in throw Refusal("404") }
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"), maxRetries: 1, usesBackoff: false)
    for _ in 1...2 { try await queue.runAvailable() }
    #expect(
      await callbacks(events, until: "gave up: 404")
        == ["added", "started", "failed: 404", "started", "gave up: 404"]
    )
    #expect(try await job.outcome() == .abandoned(reason: "404"))
  }

  @Test func `progress is 1 on success, and 0 after a failure`() async throws {
    let queue = queue()
    await queue.register(Download.self) { _, context in
      context.report(progress: 0.5)
      if context.retryCount == 0 { throw Refusal() }
    }
    let job = try await queue.enqueue(Download(url: "a"), usesBackoff: false)
    try await queue.runAvailable()
    var fractions = job.progress.makeAsyncIterator()
    #expect(await fractions.next() == 0)
    try await queue.runAvailable()
    #expect(await fractions.next() == 1)
    #expect(await fractions.next() == nil)
  }

  @Test func `the result is there for every caller that holds the job`() async throws {
    let queue = queue()
    await queue.register(Download.self) { download, _ in "\(download.url).mp4" }
    let job = try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    #expect(try await job.value(as: String.self) == "a.mp4")
  }

  @Test func `a job is delivered on the main actor where that is asked`() async throws {
    let queue = queue()
    let view = DownloadView()
    await queue.register(Download.self) { @MainActor download, _ in
      view.show(download.url)
    }
    try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    #expect(await view.shown == ["a"])
  }

  // MARK: Control

  @Test func `a job that runs is cancelled, and reports nothing more`() async throws {
    let queue = queue()
    await queue.register(Download.self) { [gate] _, context in
      context.report(progress: 0.5)
      do {
        try await gate.wait { nil }
      } catch {
        context.report(progress: 0.9)
        throw error
      }
    }
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"))
    try await withRunning(queue) { () async throws in
      #expect(await callbacks(events, until: "progress 0.5").last == "progress 0.5")
      #expect(try await job.cancel())
      #expect(try await job.outcome() == .cancelled)
    }
    #expect(await callbacks(events, until: "cancelled") == ["cancelled"])
  }

  @Test func `a job that waits is cancelled without being started`() async throws {
    let queue = await heldQueue()
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"))
    #expect(try await job.cancel())
    #expect(try await queue.runAvailable() == 0)
    #expect(await callbacks(events, until: "cancelled") == ["added", "cancelled"])
  }

  @Test func `all jobs are cancelled, those that run and those that wait`() async throws {
    let queue = await heldQueue(concurrency: 2)
    let events = queue.events
    let jobs = try await queue.enqueue(contentsOf: (1...5).map { Download(url: "\($0)") })
    try await withRunning(queue) { () async throws in
      #expect(await callbacks(events, until: "progress 0.5").last == "progress 0.5")
      #expect(try await queue.cancelAll() == 5)
      for job in jobs { #expect(try await job.outcome() == .cancelled) }
    }
    #expect(try await queue.count == 0)
  }

  @Test func `a finished job can't become cancelled`() async throws {
    let queue = queue()
    await queue.register(Download.self) { _, _ in }
    let job = try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    #expect(try await job.cancel() == false)
    #expect(try await job.outcome() == .succeeded)
  }

  @Test func `a job is dropped without a trace`() async throws {
    let queue = await heldQueue()
    let job = try await queue.enqueue(Download(url: "a"))
    #expect(try await queue.remove(job.id))
    #expect(try await queue.count(matching: TaskFilter()) == 0)
    #expect(try await queue.task(job.id) == nil)
    #expect(try await queue.remove(job.id) == false)
  }

  @Test func `all jobs are paused and resumed; one that is added during the pause waits`()
    async throws
  {
    let queue = queue()
    await queue.register(Download.self) { _, _ in }
    await queue.pause()
    try await queue.enqueue(contentsOf: [Download(url: "a"), Download(url: "b")])
    #expect(try await queue.runAvailable() == 0)
    await queue.resume()
    #expect(try await queue.runAvailable() == 2)
  }

  @Test func `one job is paused while it runs, and goes on when resumed`() async throws {
    let queue = await heldQueue()
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"))
    try await withRunning(queue) { () async throws in
      #expect(await callbacks(events, until: "progress 0.5").last == "progress 0.5")
      #expect(try await queue.pause(job.id))
      #expect(await callbacks(events, until: "paused") == ["paused"])
      #expect(try await queue.tasks().map(\.state) == [.paused])
      #expect(try await queue.resume(job.id))
      #expect(await callbacks(events, until: "progress 0.5").contains("started"))
      gate.resumeAll(with: .success(()))
      #expect(try await job.outcome() == .succeeded)
    }
  }

  @Test func `one job is restarted, and is ready as if it were new`() async throws {
    let queue = queue()
    await queue.register(Download.self) { [log] _, context in
      log.add("\(context.retryCount)")
      if context.retryCount < 2, log.count < 3 { throw Refusal() }
    }
    let job = try await queue.enqueue(Download(url: "a"), usesBackoff: false)
    for _ in 1...2 { try await queue.runAvailable() }
    #expect(try await queue.retry(job.id))
    try await queue.runAvailable()
    #expect(log.entries == ["0", "1", "0"])
    #expect(try await job.outcome() == .succeeded)
  }
}
