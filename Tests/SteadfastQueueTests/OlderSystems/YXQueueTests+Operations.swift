import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests jobs that have several operations with dependencies.
extension YXQueueTests {
  private struct Unpack: TaskPayload { var target: String }
  private struct Play: TaskPayload { var target: String }

  /// Adds the operations of one job: a download, and operations that depend on the download.
  private func add(_ job: String, to queue: TaskQueue) async throws -> [EnqueuedTask] {
    let options = TaskOptions(tags: [job])
    return try await queue.enqueue { tasks in
      let file = try tasks.add(Download(url: job), options: options)
      let folder = try tasks.add(
        Unpack(target: job),
        options: TaskOptions(dependencies: [file], tags: [job])
      )
      try tasks.add(Play(target: job), options: TaskOptions(dependencies: [folder], tags: [job]))
    }
  }

  private func workingQueue(failing: String? = nil) async -> TaskQueue {
    let queue = queue(concurrency: 3)
    await queue.register(Download.self) { [log] download, _ in
      if download.url == failing { throw TaskAbandoned("no such file") }
      log.add("download \(download.url)")
    }
    await queue.register(Unpack.self) { [log] job, _ in log.add("unpack \(job.target)") }
    await queue.register(Play.self) { [log] job, _ in log.add("play \(job.target)") }
    return queue
  }

  @Test func `an operation is performed once its dependencies are finished`() async throws {
    let queue = await workingQueue()
    _ = try await add("a", to: queue)
    while try await queue.runAvailable() > 0 {}
    #expect(log.entries == ["download a", "unpack a", "play a"])
  }

  @Test func `operations that depend on a failed operation are not performed`() async throws {
    let queue = await workingQueue(failing: "a")
    let operations = try await add("a", to: queue)
    while try await queue.runAvailable() > 0 {}
    #expect(log.entries == [])
    for operation in operations.dropFirst() {
      let outcome = try await operation.outcome()
      #expect(outcome == .cancelled)
    }
  }

  @Test func `the operations of a job can be found by its resource and cancelled together`()
    async throws
  {
    let queue = await workingQueue()
    for job in ["a", "b"] { _ = try await add(job, to: queue) }
    #expect(try await queue.tasks(matching: TaskFilter(tags: ["a"])).count == 3)
    #expect(try await queue.cancel(matching: TaskFilter(tags: ["a"])) > 0)
    #expect(
      try await queue.count(matching: TaskFilter(states: TaskState.unfinished, tags: ["a"])) == 0
    )
    while try await queue.runAvailable() > 0 {}
    #expect(log.entries == ["download b", "unpack b", "play b"])
  }

  @Test func `an operation of a job can be found by its name and resource`() async throws {
    let queue = await workingQueue()
    let operations = try await add("a", to: queue)
    let found = try await queue.tasks(matching: TaskFilter(names: [Unpack.taskName], tags: ["a"]))
    #expect(found.map(\.id) == [operations[1].id])
  }
}
