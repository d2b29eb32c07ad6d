import Foundation
import SteadfastTesting
import TestSupport
import Testing

@Suite struct HistoryRecorderTests {
  struct Job: TaskPayload {
    var fails: Bool
  }

  /// Performs two tasks through a recorder that writes to a new file, and returns that file's URL.
  private func recordTwoTasks(in folder: URL, on store: any Persistence) async throws -> URL {
    let file = folder.appending(path: "first.jsonl")
    let clock = VirtualTime.current?.clock ?? VirtualClock()
    let recorder = try HistoryRecorder(store, to: file, clock: clock)
    let queue = TaskQueue(
      persistence: recorder,
      configuration: TaskQueueConfiguration(backoff: .constant(.zero)),
      clock: clock
    )
    await queue.register(Job.self) { job, context in
      try await recorder.recordAttempt(of: context.id) {
        if job.fails, context.retryCount == 0 { throw TransientFault() }
      }
    }
    try await queue.enqueue(Job(fails: false))
    try await queue.enqueue(Job(fails: true))
    try recorder.recordEndOfFaults()
    // A later run retries the second task.
    while try await queue.count(matching: .unfinished) > 0 { try await queue.runAvailable() }
    try await recorder.recordRemainingTasks()
    return file
  }

  @Test(.virtualTime) func `a history is written, read and checked`() async throws {
    try await withTemporaryFolder { folder in
      let file = try await recordTwoTasks(in: folder, on: InMemoryStore())
      let report = try History(contentsOf: [file])
        .check(History.Expectations(endsWithin: .seconds(60)))
      #expect(report.passes, "\(report)")
      #expect(report.taskCount == 2)
      #expect(report.skipped.map(\.promise) == [.limitsHold])
      let text = try String(contentsOf: file, encoding: .utf8)
      #expect(text.components(separatedBy: "attemptBegan").count - 1 >= 3)
      #expect(text.components(separatedBy: #""process":"first""#).count > 10)
    }
  }

  @Test(.virtualTime)
  func `a truncated last line is ignored, and an invalid earlier line is an error`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = try await recordTwoTasks(in: folder, on: InMemoryStore())
      let data = try Data(contentsOf: file)
      for count in [0, 1, data.count / 2, data.count - 1] {
        try data.prefix(count).write(to: file)
        #expect(throws: Never.self) { try History(contentsOf: [file]) }
      }
      try (Data("{\n".utf8) + data).write(to: file)
      let error = #expect(throws: HistoryError.self) { try History(contentsOf: [file]) }
      #expect(error?.description.contains("line 1 of first.jsonl") == true)
    }
  }

  @Test func `a recorder can't be created for an existing file or in a missing folder`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "1.jsonl")
      try Data().write(to: file)
      let missing = folder.appending(path: "missing/1.jsonl")
      for url in [file, missing] {
        let error = #expect(throws: HistoryError.self) {
          try HistoryRecorder(InMemoryStore(), to: url)
        }
        #expect(error?.description.contains(url.path) == true)
      }
    }
  }

  @Test(.virtualTime)
  func
    `the last line of a recorded call states whether the call had an effect, if that is known`()
    async throws
  {
    let lines = Log<HistoryLine>()
    let store = FaultInjectingStore()
    let recorder = HistoryRecorder(store, process: "p", clock: VirtualClock()) { lines.add($0) }
    let id = TaskID(high: 0, low: 1)
    let remove = [TaskChange.remove(id)]
    store.inject(.transientError) { $0.kind == .apply }
    await #expect(throws: TransientFault.self) {
      try await recorder.apply(remove, durability: .durable)
    }
    let forbidden = [TaskChange.complete(id, named: "", value: [])]
    await #expect(throws: TaskQueueError.self) {
      try await recorder.apply(forbidden, durability: .durable)
    }
    _ = try await recorder.apply(remove, durability: .durable)
    let kinds = lines.entries.map { line in
      switch line.event {
      case .asked(let call, _): "asked \(call)"
      case .unanswered(let call, _): "unanswered \(call)"
      case .refused(let call, _): "refused \(call)"
      case .answered(let call, let outcomes):
        "answered \(call) \(outcomes.map(\.kind.rawValue).joined())"
      case .opening, .claiming, .granted, .attemptBegan, .attemptEnded, .faultsEnded, .remaining:
        "another line"
      }
    }
    #expect(
      kinds == [
        "asked 1", "unanswered 1", "asked 2", "refused 2", "asked 3", "answered 3 stale",
      ]
    )
  }

  @Test(.virtualTime) func `recording fails when a line can't be written`() async throws {
    struct DiskFull: Error {}
    let recorder = HistoryRecorder(InMemoryStore(), process: "p", clock: VirtualClock()) { _ in
      throw DiskFull()
    }
    await #expect(throws: DiskFull.self) {
      try await recorder.apply([.remove(TaskID(high: 0, low: 1))], durability: .durable)
    }
    await #expect(throws: DiskFull.self) {
      try await recorder.recordAttempt(of: TaskID(high: 0, low: 1)) {}
    }
    #expect(throws: DiskFull.self) { try recorder.recordEndOfFaults() }
  }
}
