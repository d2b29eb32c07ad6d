import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the behaviour that the README and the headers of YXQueue, an older library, promise.
///
/// The intended difference: adding a task to a paused queue does not resume the queue.
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

  /// Makes a queue whose downloads report half of their progress, and then wait for the gate.
  private func gatedQueue(concurrency: Int = 1) async -> TaskQueue {
    let queue = queue(concurrency: concurrency)
    await queue.register(Download.self) { [gate] _, context in
      context.report(progress: 0.5)
      try await gate.wait { nil }
    }
    return queue
  }

  /// The name of the delegate's call that corresponds to an event.
  private static func callback(_ event: TaskEvent) -> String? {
    switch event {
    case .enqueued: "added"
    case .started: "started"
    case .progressed(_, let fraction): "progress \(fraction)"
    case .failed(_, let reason, _, _): "failed: \(reason)"
    case .succeeded: "finished"
    case .abandoned(_, let reason, _): "abandoned: \(reason)"
    case .cancelled: "cancelled"
    case .paused: "paused"
    case .resumed: "resumed"
    case .retried: "retried"
    default: nil
    }
  }

  /// The delegate's calls for the events, up to the call named `last`.
  private func callbacks(_ events: TaskEvents, until last: String) async -> [String] {
    var found: [String] = []
    for await event in events {
      guard let callback = Self.callback(event) else { continue }
      found.append(callback)
      if callback == last { break }
    }
    return found
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
    #expect(record.createdDate == queue.core.now)
    #expect(try record.payload(as: Download.self).url == "https://example.com/a.mp4")
    #expect(try await queue.count(matching: TaskFilter(tags: ["books"])) == 0)
  }

  @Test func `at most 5 downloads run at a time, and don't delay jobs of other types`()
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
      // Another upload ends, and still no sixth download has started.
      #expect(try await queue.enqueue(Upload(url: "up")).outcome() == .succeeded)
      #expect(try await queue.count(matching: TaskFilter(states: [.running])) == 5)
      try await queue.cancelAll()
    }
    #expect(log.entries == ["up", "up"])
  }

  @Test func `waiting jobs start in the order of their priorities`() async throws {
    let queue = queue()
    await queue.register(Download.self) { [log] download, _ in log.add(download.url) }
    try await queue.enqueue(Download(url: "low"), priority: .low)
    try await queue.enqueue(Download(url: "high"), priority: .high)
    try await queue.runAvailable()
    #expect(log.entries == ["high", "low"])
  }

  // MARK: Callbacks

  @Test func `start, progress and finish are reported once to each of several delegates`()
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

  @Test func `a failure is reported with its error`() async throws {
    let queue = queue()
    await queue.register(Download.self) { _, _ in throw Refusal("404") }
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"), maxRetries: 1, usesBackoff: false)
    for _ in 1...2 { try await queue.runAvailable() }
    #expect(
      await callbacks(events, until: "abandoned: 404")
        == ["added", "started", "failed: 404", "started", "abandoned: 404"]
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

  @Test func `the result is available through the job`() async throws {
    let queue = queue()
    await queue.register(Download.self) { download, _ in "\(download.url).mp4" }
    let job = try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    #expect(try await job.value(as: String.self) == "a.mp4")
  }

  @Test func `a handler can run on the main actor`() async throws {
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

  @Test func `a running job that is cancelled reports nothing more`() async throws {
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

  @Test func `a waiting job that is cancelled never starts`() async throws {
    let queue = await gatedQueue()
    let events = queue.events
    let job = try await queue.enqueue(Download(url: "a"))
    #expect(try await job.cancel())
    #expect(try await queue.runAvailable() == 0)
    #expect(await callbacks(events, until: "cancelled") == ["added", "cancelled"])
  }

  @Test func `cancelling all jobs cancels running and waiting ones`() async throws {
    let queue = await gatedQueue(concurrency: 2)
    let events = queue.events
    let jobs = try await queue.enqueue(contentsOf: (1...5).map { Download(url: "\($0)") })
    try await withRunning(queue) { () async throws in
      #expect(await callbacks(events, until: "progress 0.5").last == "progress 0.5")
      #expect(try await queue.cancelAll() == 5)
      for job in jobs { #expect(try await job.outcome() == .cancelled) }
    }
    #expect(try await queue.count == 0)
  }

  @Test func `a finished job can't be cancelled`() async throws {
    let queue = queue()
    await queue.register(Download.self) { _, _ in }
    let job = try await queue.enqueue(Download(url: "a"))
    try await queue.runAvailable()
    #expect(try await job.cancel() == false)
    #expect(try await job.outcome() == .succeeded)
  }

  @Test func `a removed job leaves no record`() async throws {
    let queue = await gatedQueue()
    let job = try await queue.enqueue(Download(url: "a"))
    #expect(try await queue.remove(job.id))
    #expect(try await queue.count(matching: TaskFilter()) == 0)
    #expect(try await queue.task(job.id) == nil)
    #expect(try await queue.remove(job.id) == false)
  }

  @Test func `all jobs can be paused and resumed, and a job added during the pause waits`()
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

  @Test func `a job can be paused while it runs, and starts again when resumed`() async throws {
    let queue = await gatedQueue()
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

  @Test func `a job can be restarted, with all its retries`() async throws {
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
