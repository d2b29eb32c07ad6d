import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests when a failed compaction is retried, and when the failure is reported.
@Suite struct FailedCompactionTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }
  private let announcements = Log<String>()

  private func makeCore() -> JSONFileCore {
    let (storage, executor, announcements) = (storage, executor, announcements)
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      compactionPolicy: CompactionPolicy(
        minimumSize: 2000,
        spareSize: 0,
        stepSize: 300,
        flushSize: 1000
      ),
      date: { .seconds(7) },
      announce: { announcements.add($0) },
      thread: { executor }
    ) { (nil, storage) }
  }

  private func run(_ body: @escaping @Sendable () async throws -> Void) async throws {
    try await executor.run(body)
  }

  @Test(arguments: [MemoryStorage.Call.create(.replacement), .rename(.replacement, .journal)])
  func `a failed compaction is retried when the file has doubled, and not before`(
    call: MemoryStorage.Call
  ) async throws {
    let core = makeCore()
    try await run { try await core.open() }
    storage.fail(call, ENOSPC)
    var attempts: [(before: Int, after: Int)] = []
    for number in 100...199 where attempts.count < 2 {
      let (size, count) = (storage.bytes.count, attemptCount)
      try await run { try await core.churn(number...number) }
      if attemptCount > count { attempts.append((size, storage.bytes.count)) }
    }
    try #require(attempts.count == 2)
    let (failed, next) = (attempts[0], attempts[1])
    #expect(failed.before < failed.after)
    let churned = failed.after - failed.before
    #expect(next.before + churned >= 2 * failed.before)
    #expect(next.before < 2 * failed.after)
    #expect(next.after < next.before)
  }

  @Test(arguments: [
    MemoryStorage.Call.create(.replacement), .openFolder, .rename(.replacement, .journal),
  ])
  func `each reason why a compaction failed is reported once`(
    call: MemoryStorage.Call
  ) async throws {
    let core = makeCore()
    try await run { try await core.open() }
    for error in [EMFILE, EMFILE, ENOSPC] { storage.fail(call, error) }
    var reasons: [String] = []
    var number = 100
    while reasons.last != "done" {
      try await run { [number] in try await core.churn(number...number) }
      number += 1
      let statistics = try await executor.run { try await core.statistics() }
      let failure = statistics.failedCompaction
      if let failure {
        #expect(failure.date == .seconds(7))
        #expect(failure.nextSize > statistics.byteCount / 2)
      }
      let reason = failure?.reason ?? (statistics.lastCompaction == nil ? "none" : "done")
      if reason != reasons.last { reasons.append(reason) }
    }
    let texts = [EMFILE, ENOSPC].map { "\(SystemCallError("\(call)", $0))" }
    #expect(reasons == ["none"] + texts + ["done"])
    #expect(announcements.count == 2)
    for (announcement, text) in zip(announcements.entries, texts) {
      #expect(announcement.contains("/queue.jsonl can't be compacted: \(text)"))
    }
  }

  @Test func `a failed compaction is retried when the tasks need half the space`()
    async throws
  {
    let core = makeCore()
    try await run { try await core.open() }
    // Most of the file is dead, but there is no space on the disk for a copy of the live tasks.
    try await run { for number in 1...20 { try await core.insert(.make(number)) } }
    storage.fail(.create(.replacement), ENOSPC)
    var number = 100
    while attemptCount == 1, number < 1_000 {
      try await run { [number] in try await core.churn(number...number) }
      number += 1
    }
    #expect(attemptCount == 2)
    let failure = try await executor.run { try await core.statistics() }.failedCompaction
    let nextSize = try #require(failure).nextSize
    try await run {
      let ends = (1...20).map {
        TaskChange.cancel(.unclaimed(.numbered($0)), at: .seconds(1), retains: false)
      }
      _ = try await core.apply(ends, .durable)
    }
    for _ in 0..<3 {
      try await run { [number] in try await core.churn(number...number) }
      number += 1
    }
    #expect(storage.bytes.count < 2000 && storage.bytes.count < nextSize)
    let statistics = try await executor.run { try await core.statistics() }
    #expect(statistics.failedCompaction == nil && statistics.lastCompaction != nil)
  }

  /// The number of compactions that were started.
  private var attemptCount: Int { storage.calls.count { $0 == .create(.replacement) } }
}
