import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a store that verifies that its file contains the tasks that it has in memory.
@Suite struct JSONFileVerifyTests {
  /// A store with tasks in many states, some of them claimed.
  private func makeBusyStore(at file: URL) async throws -> JSONFileStore {
    let store = JSONFileStore(at: file)
    let insertions = (1...12).map { number -> TaskChange in
      let key = number < 4 ? "K" : number == 8 ? "L" : nil
      return TaskChange.insert(.make(number, key: key), onDuplicate: .replace)
    }
    for insertion in insertions { _ = try await store.apply([insertion], durability: .durable) }
    let request = ClaimRequest(limit: 6, names: ["Note": .max], now: Date())
    let leases = try await store.claim(request).tasks.map(\.lease)
    let failure = TaskFailure(reason: "no", date: Date())
    _ = try await store.apply(
      [
        .succeed(leases[0], at: Date(), retains: true),
        .retry(leases[1], availableDate: Date(), retryCount: 1, failure: failure),
        .park(leases[2], failure: failure),
        .cancel(.unclaimed(.numbered(12)), at: Date(), retains: true),
        .pause(.unclaimed(.numbered(11))),
        // The running task with this key loses the key to the new task.
        .insert(.make(20, key: "L"), onDuplicate: .replace),
      ],
      durability: .durable
    )
    return store
  }

  private func rewriteLines(of file: URL, _ change: (inout [[UInt8]]) -> Void) throws {
    var lines = try Data(contentsOf: file).split(separator: 0x0A).map { Array($0) + [0x0A] }
    change(&lines)
    let handle = try FileHandle(forWritingTo: file)
    try handle.truncate(atOffset: 0)
    try handle.write(contentsOf: Data(lines.flatMap { $0 }))
    try handle.close()
  }

  @Test func `a store agrees with its file on payloads of many fields`() async throws {
    struct Form: TaskPayload {
      var name = "", street = "", town = "", country = "", notes: [String: Int] = ["a": 1, "b": 2]
    }
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"))
      let queue = TaskQueue(persistence: store)
      try await queue.enqueue(contentsOf: (0..<20).map { _ in Form() })
      #expect(try await store.verify().problems == [])
      try await store.close()
    }
  }

  @Test func `a store agrees with its file, whatever the states of its tasks`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = try await makeBusyStore(at: file)
      let report = try await store.verify()
      #expect(report.problems == [])
      #expect(report.isSound)
      #expect(
        report.counts
          == [.waiting: 4, .running: 3, .parked: 1, .paused: 1, .succeeded: 1, .cancelled: 1]
      )
      let statistics = try await store.statistics()
      #expect(report.byteCount == statistics.byteCount)
      #expect(report.recordCount == statistics.recordCount)
      #expect(report.version == 1)
      try await store.close()

      // The next store finds interrupted tasks, and agrees with the file, too.
      let second = JSONFileStore(at: file)
      #expect(try await second.verify().isSound)
      try await second.close()
      await #expect(throws: JSONFileError.self) { _ = try await second.verify() }
    }
  }

  @Test func `changes to the file that the store did not make are found`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = try await makeBusyStore(at: file)
      let whole = try Data(contentsOf: file)

      try rewriteLines(of: file) { $0 = $0.flipping(5) }
      #expect(try await store.verify().problems.map(\.line).contains(6))

      // The last line is cut off. All remaining lines are valid.
      try rewriteLines(of: file) { _ = $0.removeLast() }
      #expect(try await !store.verify().isSound)

      try rewriteLines(of: file) { $0 = whole.split(separator: 0x0A).map { Array($0) + [0x0A] } }
      #expect(try await store.verify().isSound)

      // The file is moved away, and replaced by another intact file.
      let moved = folder.appending(path: "moved.jsonl")
      try FileManager.default.moveItem(at: file, to: moved)
      #expect(try await store.verify().problems.map(\.reason).first?.contains("moved") == true)
      var other = try JournalText()
      try other.addTasks(1...3)
      let isMade = FileManager.default.createFile(
        atPath: file.path,
        contents: Data(other.bytes),
        attributes: [.posixPermissions: 0o600]
      )
      #expect(isMade)
      #expect(try await store.verify().problemCount == 1)

      try FileManager.default.removeItem(at: file)
      try FileManager.default.moveItem(at: moved, to: file)
      #expect(try await store.verify().isSound)
      try await store.close()
    }
  }

  @Test func `the report names a task that differs in the file`() async throws {
    let storage = MemoryStorage()
    let core = JSONFileCore(URL(filePath: "/queue.jsonl")) { (nil, storage) }
    try await core.open()
    _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
    var other = try JournalText()
    try other.add(.change(.insert(.make(1, priority: .high), onDuplicate: .keep)))
    storage.state.withLock { $0.files[0] = other.bytes }
    let reasons = try await core.verify().problems.map(\.reason)
    #expect(
      reasons.contains(
        "task \(TaskID.numbered(1)) differs between the file and the store"
      )
    )
    try await core.close()
  }

  @Test(arguments: Workload.all.filter { $0.faultShare == 0 })
  func `verifying an intact store finds no problem, whatever calls run at the same time`(
    workload: Workload
  ) async throws {
    for seed in 1...UInt64(Soak.runs(short: 1)) {
      let storage = MemoryStorage()
      let executor = ManualExecutor { 0 }
      let policy = CompactionPolicy(
        minimumSize: workload.compactionSize,
        spareSize: 0,
        stepSize: 200
      )
      let core = JSONFileCore(
        URL(filePath: "/queue.jsonl"),
        compactionPolicy: policy,
        thread: { executor }
      ) { (nil, storage) }
      var caller = SimulatedCaller(workload, seed: seed)
      try await executor.run { try await core.open() }
      for round in 0..<workload.rounds {
        let calls = caller.nextCalls()
        let (reports, leases) = try await executor.run {
          try await perform(calls, with: core)
        }
        caller.leases += leases
        for report in reports {
          #expect(report.problems == [], "seed \(seed), round \(round)")
        }
      }
      try await executor.run { try await core.close() }
    }
  }

  /// Makes the calls concurrently, and verifies the file before, between and after them.
  private func perform(
    _ calls: [SimulatedCaller.Call],
    with core: JSONFileCore
  ) async throws -> (reports: [JSONFileReport], leases: [Lease]) {
    try await withThrowingTaskGroup(of: (JSONFileReport?, [Lease]).self) { group in
      group.addTask { (try await core.verify(), []) }
      for call in calls {
        group.addTask {
          switch call {
          case .apply(let changes, let durability):
            _ = try await core.apply(changes, durability)
            return (nil, [])
          case .claim(let request):
            return (nil, try await core.claim(request).tasks.map(\.lease))
          }
        }
        group.addTask { (try await core.verify(), []) }
      }
      var reports: [JSONFileReport] = []
      var leases: [Lease] = []
      for try await (report, claimed) in group {
        if let report { reports.append(report) }
        leases += claimed
      }
      return (reports, leases)
    }
  }

  @Test func `a verification ignores changes that aren't written yet`() async throws {
    let storage = MemoryStorage()
    let executor = ManualExecutor { 0 }
    let core = JSONFileCore(URL(filePath: "/queue.jsonl"), thread: { executor }) { (nil, storage) }
    try await executor.run {
      try await core.open()
      _ = try await core.apply((1...4).map { .insert(.make($0), onDuplicate: .keep) }, .durable)
    }
    let verification = Task(executorPreference: executor) { try await core.verify() }
    executor.runTasks()
    // While the verification waits for the thread, the store accepts these changes, but doesn't
    // write the changes yet.
    let claim = Task(executorPreference: executor) {
      try await core.claim(ClaimRequest(limit: 2, names: ["Note": .max], now: .seconds(0)))
    }
    let changes = Task(executorPreference: executor) {
      try await core.apply(
        [
          .cancel(.unclaimed(.numbered(4)), at: .seconds(0), retains: false),
          .insert(.make(5), onDuplicate: .keep),
        ],
        .durable
      )
    }
    executor.runTasks()
    #expect(core.state.withLock { $0.pipeline.pending.count } == 2)
    repeat { executor.runTasks() } while executor.doJob()
    let report = try await verification.value
    #expect(report.problems == [])
    // The store counts a claimed task as running.
    #expect(report.counts == [.waiting: 2, .running: 2])
    #expect(try await claim.value.tasks.count == 2)
    #expect(try await changes.value == [.done, .done])
    let after = try await executor.run { try await core.verify() }
    #expect(after.problems == [])
    #expect(after.counts == [.waiting: 2, .running: 2])
  }
}
