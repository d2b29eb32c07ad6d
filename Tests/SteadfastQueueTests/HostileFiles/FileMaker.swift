import Foundation
import SteadfastRetry

@testable import SteadfastQueue

/// Makes files as the library writes them.
///
/// The real store makes random changes of every kind, with every field. From time to time the store
/// is closed, or its process ends, and another store opens the file.
struct FileMaker {
  private var random: SplitMix64
  private var taskCount = 0
  private var leases: [Lease] = []
  private var values: [String: [UInt8]] = [:]
  private var now = 1_000_000.5

  private init(seed: UInt64) { random = SplitMix64(seed: seed) }

  /// Makes a file by `rounds` random steps.
  ///
  /// The seed determines the steps, and whether the file is closed in the end.
  static func file(seed: UInt64, rounds: Int = 24) async throws -> RealFile {
    let storage = MemoryStorage()
    let executor = ManualExecutor { 0 }
    try await executor.run {
      var maker = FileMaker(seed: seed)
      var core = try await maker.open(storage, executor)
      for _ in 0..<rounds {
        try await maker.step(core)
        guard maker.pick(10) == 0 else { continue }
        if maker.pick(2) == 0 { try await core.close() }
        core = try await maker.open(storage, executor)
        maker.leases = []
      }
      if maker.pick(3) > 0 { try await core.close() }
    }
    return RealFile(storage.bytes)
  }

  private mutating func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

  private mutating func open(
    _ storage: MemoryStorage,
    _ executor: ManualExecutor
  ) async throws -> JSONFileCore {
    // When a process ends, its remaining jobs never run.
    executor.dropJobs()
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      compactionPolicy: CompactionPolicy(
        minimumSize: pick(2) == 0 ? 3000 : .max,
        spareSize: 0,
        stepSize: 400,
        flushSize: 800
      ),
      date: { .seconds(1_000_000) },
      thread: { executor }
    ) { (nil, storage) }
    try await core.open()
    return core
  }

  private mutating func step(_ core: JSONFileCore) async throws {
    now += Double(pick(100)) / 8
    if pick(4) == 0 {
      let request = ClaimRequest(
        limit: 1 + pick(3),
        queue: queue(),
        names: ["A": .max, "B ": .max],
        now: .seconds(now),
        conditions: ["a\"", "b"]
      )
      leases += try await core.claim(request).tasks.map(\.lease)
      return
    }
    var changes = (0..<1 + pick(3)).map { _ in change() }
    if pick(4) == 0 { changes.append(value()) }
    let outcomes = try await core.apply(changes, pick(3) == 0 ? .relaxed : .durable)
    if case .setValue(let name, _, let new)? = changes.last, outcomes.last == .done {
      values[name] = new
    }
  }

  private mutating func change() -> TaskChange {
    switch pick(10) {
    case 0..<5: insertion()
    case 5..<8: leases.isEmpty ? insertion() : end(leases.remove(at: pick(leases.count)))
    case 8: control(.numbered(1 + max(0, taskCount - 1 - pick(pick(2) == 0 ? 6 : taskCount + 1))))
    default: maintenanceChange()
    }
  }

  private mutating func value() -> TaskChange {
    let name = ["a", "é\"", "\u{1}"][pick(3)]
    let new: [UInt8]? = [nil, [], Array("{\"a\":\(pick(99))}".utf8), [0, 10, 255]][pick(4)]
    return .setValue(named: name, from: values[name], to: new)
  }

  private static let stepNames = ["step", "é\"", "\u{1}"]

  private mutating func stepName() -> String { Self.stepNames[pick(3)] }

  /// Draws the value of a step.
  ///
  /// It is often empty, so that a completion may fill it.
  private mutating func stepValue() -> [UInt8] {
    [[], [], Array("{\"a\":\(pick(99))}".utf8), [0, 10, 255]][pick(4)]
  }

  private mutating func insertion() -> TaskChange {
    taskCount += 1
    let date = Date.seconds(now)
    let text = ["", "plain", "\"\\\u{1}\n", "é👩‍👩‍👧\u{2028}", "\u{1f}"][pick(5)]
    let record = TaskRecord(
      id: pick(9) == 0
        ? TaskID(high: random.next(), low: random.next()) : .numbered(taskCount),
      name: pick(2) == 0 ? "A" : "B ",
      payload: payload(text),
      priority: TaskQueue.Priority(rawValue: [0, 1, -1, .max, .min][pick(5)]),
      createdDate: date,
      maxRetries: [.atMost(0), .atMost(10), .atMost(.max), .alwaysRetry][pick(4)],
      usesBackoff: pick(4) > 0,
      uniqueKey: pick(3) == 0 ? "key \(pick(4))\(text)" : nil,
      orderKey: pick(5) == 0 ? "order \(pick(2))" : nil,
      blocksOrderOnFailure: pick(3) == 0,
      conditions: pick(5) == 0 ? ["a\"", "b"] : [],
      dependencies: pick(3) == 0 ? dependencies() : nil,
      queue: queue(),
      tags: pick(3) == 0 ? [text, "tag", "\(pick(9))"] : [],
      metadata: taskCount % 4 == 0 ? ["k\(text)": text, "number": "\(taskCount)"] : [:],
      timeLimit: pick(3) == 0
        ? [.seconds(1), .nanoseconds(1), .seconds(100_000_000_000), Duration(attoseconds: 1)][
          pick(4)
        ]
        : nil,
      expiryDate: pick(4) == 0 ? [date + 1e6, .distantFuture, .distantPast][pick(3)] : nil,
      state: pick(9) == 0
        ? [.paused, .parked, .abandoned, .succeeded, .suspended][pick(5)] : .waiting,
      availableDate: [date, date + 20.25, .distantPast][pick(3)],
      retryCount: pick(5) == 0 ? pick(9) : 0,
      interruptionCount: pick(9) == 0 ? pick(9) : 0,
      lastError: pick(9) == 0 ? text : nil,
      failedDate: pick(9) == 0 ? date : nil,
      failedAttempt: pick(9) == 0 ? attempt() : nil,
      earlierFailures: (0..<pick(3)).map { _ in
        TaskFailure(reason: text, date: date, attempt: attempt())
      },
      parkedVersion: [nil, 0, .max][pick(3)],
      isPostponed: [nil, true, false][pick(3)],
      finishedDate: pick(9) == 0 ? date : nil
    )
    // A task with dependencies can't replace another task.
    let policies: [UniquePolicy] = [.keep, record.dependencies.isEmpty ? .replace : .join, .reject]
    return .insert(record, onDuplicate: policies[pick(3)])
  }

  /// Draws dependencies on recent tasks, and a follower that may exist or be the next task.
  private mutating func dependencies() -> TaskDependencies {
    let numbers = (0..<pick(4)).map { _ in taskCount - 1 - pick(6) }.filter { $0 > 0 }
    let follower = [taskCount + 1, taskCount - 1 - pick(5)][pick(2)]
    return TaskDependencies(
      on: Set(numbers.map(TaskID.numbered)),
      rule: pick(3) == 0 ? .allEnded : .allSucceeded,
      follower: pick(3) == 0 && follower > 0 ? .numbered(follower) : nil
    )
  }

  private mutating func queue() -> String { pick(6) == 0 ? "é\"" : "" }

  private mutating func payload(_ text: String) -> StoredPayload {
    let version = pick(4) == 0 ? pick(9) : 1
    switch pick(3) {
    case 0:
      let bytes = (0..<pick(20)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
      return StoredPayload(bytes, format: .binary, version: version)
    case 1:
      return StoredPayload(["text": [text, "x"]], version: version)
    default:
      let numbers = "[1,-2.5e+3,true,null,{\"a\":{}}]"
      return StoredPayload(Array(numbers.utf8), format: .json, version: version)
    }
  }

  private mutating func attempt() -> FailedAttempt? {
    let known = FailedAttempt(.timedOut, duration: .seconds(pick(9)))
    return [nil, known, FailedAttempt(text: "ö x\n")][pick(3)]
  }

  private mutating func end(_ lease: Lease) -> TaskChange {
    let date = Date.seconds(now)
    let failure = TaskFailure(reason: "no\n\(pick(9))", date: date, attempt: attempt())
    switch pick(13) {
    case 9: return .suspend(lease, until: [date + 9.5, .distantFuture][pick(2)], awaiting: [])
    case 10: return .suspend(lease, until: .distantFuture, awaiting: Self.stepNames)
    case 11, 12:
      // The lease is used again, so that a task often stores several values.
      if pick(3) > 0 { leases.append(lease) }
      return .remember(lease, named: stepName(), value: stepValue())
    case 0, 1: return .succeed(lease, at: date, retains: pick(2) == 0)
    case 2:
      return .retry(
        lease,
        availableDate: date + 3.75,
        retryCount: 1 + pick(3),
        failure: pick(2) == 0 ? failure : nil
      )
    case 3: return .abandon(lease, failure: failure, retains: pick(2) == 0)
    case 4: return .park(lease, failure: failure, knownVersion: [nil, 1, 2][pick(3)])
    case 5: return .cancel(.claimed(lease), at: date, retains: pick(2) == 0)
    case 6: return .pause(.claimed(lease))
    case 7: return .restart(.claimed(lease), availableDate: date, forgets: pick(2) == 0)
    default: return pick(2) == 0 ? .release(lease) : .extend(lease, for: .seconds(60))
    }
  }

  private mutating func control(_ id: TaskID) -> TaskChange {
    switch pick(8) {
    case 6, 7: .complete(id, named: stepName(), value: stepValue() + [UInt8(pick(256))])
    case 0: .cancel(.unclaimed(id), at: .seconds(now), retains: pick(2) == 0)
    case 1: .pause(.unclaimed(id))
    case 2: .resume(id)
    case 3: .restart(.unclaimed(id), availableDate: .seconds(now), forgets: pick(2) == 0)
    case 4: .update(id, update())
    default: .remove(id)
    }
  }

  private mutating func update() -> TaskUpdate {
    TaskUpdate(
      payload: pick(2) == 0 ? payload("\(pick(9))") : nil,
      priority: pick(2) == 0 ? TaskQueue.Priority(rawValue: pick(3) - 1) : nil,
      maxRetries: pick(3) == 0 ? [.atMost(pick(9)), .alwaysRetry][pick(2)] : nil,
      usesBackoff: pick(3) == 0 ? pick(2) == 0 : nil,
      timeLimit: pick(3) == 0 ? .milliseconds(1 + pick(9)) : nil,
      expiryDate: pick(3) == 0 ? .seconds(now + 1e6) : nil,
      tags: pick(3) == 0 ? [[], ["tag"], ["", "é"]][pick(3)] : nil,
      metadata: [nil, nil, [:], ["updated": "\"\(now)\n"]][Int(now) % 4]
    )
  }

  private mutating func maintenanceChange() -> TaskChange {
    switch pick(4) {
    case 0: .unpark(name: "A", queue: queue(), below: [nil, 1, 2][pick(3)])
    case 1: .rebase(.seconds(now - 50))
    case 2:
      .prune(
        .succeeded,
        endedBefore: nil,
        keepingLatest: pick(3),
        now: .distantPast,
        queue: queue()
      )
    default:
      .prune(.abandoned, endedBefore: .seconds(now - 60), keepingLatest: nil, now: .distantPast)
    }
  }
}
