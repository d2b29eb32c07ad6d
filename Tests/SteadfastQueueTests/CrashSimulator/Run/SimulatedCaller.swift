import Foundation
import SteadfastRetry

@testable import SteadfastQueue

/// Draws the calls of a workload at random.
struct SimulatedCaller: Sendable {
  enum Call: Sendable {
    case apply([TaskChange], Durability)
    case claim(ClaimRequest)
  }

  /// The number of the last disk call that may fail.
  static let lastFaultyCall = 400
  /// The leases of the tasks that were claimed and haven't ended.
  var leases: [Lease] = []
  private let workload: Workload
  private let seed: UInt64
  private var random: SplitMix64
  private var taskCount = 0
  /// The values that were set last, stored or not.
  private var values: [String: [UInt8]] = [:]

  init(_ workload: Workload, seed: UInt64) {
    self.workload = workload
    self.seed = seed
    random = SplitMix64(seed: seed)
  }

  /// A random number from zero up to, but not including, `limit`.
  private mutating func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

  /// Returns `true` with a probability of `share` percent.
  mutating func happens(inPercent share: Int) -> Bool { pick(100) < share }

  /// Draws the calls to make at the same time.
  mutating func nextCalls() -> [Call] {
    (0..<1 + pick(workload.concurrentCalls)).map { _ in makeCall() }
  }

  /// Draws a call to make right after a call has returned, while others are running.
  mutating func nextCallAtOnce() -> Call? {
    workload.concurrentCalls > 1 && happens(inPercent: 50) ? makeCall() : nil
  }

  /// Draws the numbers of the disk calls that fail, and how they fail.
  mutating func faults() -> [(call: Int, fault: SimulatedDisk.Fault)] {
    guard workload.faultShare > 0 else { return [] }
    // Failures often come in series.
    var isFailing = false
    return (1...Self.lastFaultyCall).compactMap { call in
      isFailing = pick(1000) < workload.faultShare || isFailing && pick(3) == 0
      guard isFailing else { return nil }
      let number = [EIO, ENOSPC, EINTR][pick(3)]
      let faults = [SimulatedDisk.Fault.error(number), .half(number), .short]
      return (call, faults[pick(3)])
    }
  }

  private mutating func makeCall() -> Call {
    if pick(100) < workload.workShare, pick(2) == 0 {
      return .claim(
        ClaimRequest(
          limit: 1 + pick(4),
          queue: makeQueue(),
          names: ["A": .max, "B": 2],
          now: .seconds(500),
          conditions: pick(2) == 0 ? ["a"] : []
        )
      )
    }
    let durability: Durability = pick(100) < workload.relaxedShare ? .relaxed : .durable
    if pick(400) < workload.keyedShare { return .apply(makeBatchWithFollower(), durability) }
    let changes = (0..<1 + pick(workload.batchSize)).map { _ in
      pick(100) < workload.workShare ? makeEnd() : makeInsertion()
    }
    guard pick(100) < workload.valueShare else { return .apply(changes, durability) }
    return .apply((pick(2) == 0 ? changes : []) + [makeValue()], durability)
  }

  /// Draws a change of a value, most often from the value that was set last.
  private mutating func makeValue() -> TaskChange {
    let name = ["a", "b\n", "é"][pick(3)]
    let old = pick(6) == 0 ? nil : values[name]
    let new: [UInt8]? =
      switch pick(5) {
      case 0: nil
      case 1: [UInt8](repeating: UInt8(pick(256)), count: pick(60))
      default: Array("\(seed) \(pick(100))".utf8)
      }
    values[name] = new
    return .setValue(named: name, from: old, to: new)
  }

  /// Draws a batch of new tasks, and its follower.
  private mutating func makeBatchWithFollower() -> [TaskChange] {
    let count = 1 + pick(3)
    let follower = TaskID.numbered(taskCount + count + 1)
    let members = (0..<count).map { _ in
      makeInsertion(TaskDependencies(follower: follower))
    }
    let rule: DependencyRule = pick(3) == 0 ? .allEnded : .allSucceeded
    return members + [makeInsertion(TaskDependencies(rule: rule))]
  }

  /// Draws dependencies on recent tasks, or adds the task to a batch.
  private mutating func makeDependencies() -> TaskDependencies? {
    guard pick(100) < workload.keyedShare, taskCount > 4 else { return nil }
    if pick(4) == 0 { return TaskDependencies(follower: pickRecent()) }
    return TaskDependencies(
      on: Set((0...pick(2)).map { _ in pickRecent() }),
      rule: pick(3) == 0 ? .allEnded : .allSucceeded
    )
  }

  private mutating func pickRecent() -> TaskID { .numbered(taskCount - pick(4)) }

  private mutating func makeInsertion() -> TaskChange { makeInsertion(makeDependencies()) }

  private mutating func makeQueue() -> String {
    pick(100) < workload.keyedShare && pick(4) == 0 ? "q" : ""
  }

  private mutating func makeInsertion(_ dependencies: TaskDependencies?) -> TaskChange {
    taskCount += 1
    let text = String(repeating: "x", count: pick(48))
    // Most tasks are plain. The others have many of the optional fields.
    let isPlain = pick(4) > 0
    let isKeyed = pick(100) < workload.keyedShare
    let record = TaskRecord(
      id: .numbered(taskCount),
      name: pick(2) == 0 ? "A" : "B",
      payload: StoredPayload(
        Array(#"{"\#(seed)":"\#(text)"}"#.utf8),
        format: isPlain ? .json : .binary,
        version: isPlain ? 1 : 2
      ),
      priority: TaskQueue.Priority(rawValue: pick(3)),
      createdDate: .seconds(0),
      maxRetries: isPlain ? 10 : .alwaysRetry,
      usesBackoff: isPlain,
      uniqueKey: isKeyed ? "key \(pick(3))" : nil,
      uniqueUntil: isKeyed && !isPlain ? .seconds(Double(pick(200))) : nil,
      latestDate: isKeyed && !isPlain ? .seconds(Double(pick(9))) : nil,
      orderKey: pick(100) < workload.keyedShare / 2 ? "order \(pick(2))" : nil,
      blocksOrderOnFailure: pick(3) == 0,
      conditions: !isPlain && pick(3) == 0 ? ["a"] : [],
      dependencies: dependencies,
      queue: makeQueue(),
      tags: isPlain ? [] : ["tag \(pick(3))", "tag"],
      metadata: taskCount % 5 == 0 ? ["number": "\(taskCount)", "\"k\n": "é"] : [:],
      timeLimit: isPlain ? nil : .milliseconds(1 + pick(3)),
      expiryDate: isPlain ? nil : .seconds(Double(10_000 + pick(3))),
      availableDate: .seconds(Double(pick(4)))
    )
    // A task with dependencies can't replace another task.
    let policies: [UniquePolicy] = [dependencies == nil ? .replace : .keep, .keep, .reject, .join]
    return .insert(record, onDuplicate: policies[pick(4)])
  }

  /// Draws a change of a task that may not exist, or whose state may not allow the change.
  private mutating func makeManagementChange(_ date: Date) -> TaskChange {
    let id = TaskID.numbered(1 + pick(taskCount + 1))
    switch pick(12) {
    case 10, 11: return .complete(id, named: makeStepName(), value: [UInt8(pick(256))])
    case 0: return .unpark(name: "A", queue: makeQueue())
    case 1:
      return .prune(
        .succeeded,
        endedBefore: nil,
        keepingLatest: 2,
        now: date,
        queue: makeQueue()
      )
    case 2: return .prune(.cancelled, endedBefore: date, keepingLatest: nil, now: .distantPast)
    case 3: return .rebase(date)
    case 4: return .cancel(.unclaimed(id), at: date, retains: pick(2) == 0)
    case 5: return .pause(.unclaimed(id))
    case 6: return .resume(id)
    case 7: return .restart(.unclaimed(id), availableDate: date, forgets: pick(2) == 0)
    case 8: return .update(id, makeUpdate())
    default: return .remove(id)
    }
  }

  private mutating func makeStepName() -> String { ["step", "b\n", "é"][pick(3)] }

  private mutating func makeUpdate() -> TaskUpdate {
    let isWhole = pick(3) == 0
    return TaskUpdate(
      payload: pick(2) == 0 ? StoredPayload(Array("[\(pick(99))]".utf8), format: .json) : nil,
      priority: pick(2) == 0 ? TaskQueue.Priority(rawValue: pick(3)) : nil,
      maxRetries: isWhole ? .atMost(pick(3)) : nil,
      usesBackoff: isWhole ? pick(2) == 0 : nil,
      timeLimit: isWhole ? .seconds(1 + pick(3)) : nil,
      expiryDate: isWhole ? .seconds(Double(20_000 + pick(3))) : nil,
      tags: isWhole ? (pick(2) == 0 ? [] : ["tag \(pick(3))"]) : nil,
      metadata: [nil, [:], ["updated": "\(taskCount)"]][taskCount % 3]
    )
  }

  private mutating func makeEnd() -> TaskChange {
    let date = Date.seconds(Double(100 + pick(10)))
    guard !leases.isEmpty, pick(4) > 0 else {
      return pick(4) == 0 ? makeInsertion() : makeManagementChange(date)
    }
    let lease = leases.remove(at: pick(leases.count))
    let failure = TaskFailure(
      reason: "refused \(seed)",
      date: date,
      attempt: FailedAttempt(.failed, duration: .microseconds(seed % 1_000))
    )
    switch pick(15) {
    case 10...12:
      if pick(4) > 0 { leases.append(lease) }
      let value = pick(3) > 0 ? [] : [UInt8](repeating: UInt8(pick(256)), count: 1 + pick(60))
      return .remember(lease, named: makeStepName(), value: value)
    case 13: return .suspend(lease, until: date + Double(pick(900)), awaiting: [])
    case 14: return .suspend(lease, until: .distantFuture, awaiting: [makeStepName()])
    case 0, 1: return .succeed(lease, at: date, retains: pick(2) == 0)
    case 2: return .retry(lease, availableDate: date, retryCount: 1, failure: failure)
    case 3: return .abandon(lease, failure: failure, retains: pick(2) == 0)
    case 4: return .park(lease, failure: failure, knownVersion: [nil, 1, 2][pick(3)])
    case 5: return .pause(.claimed(lease))
    case 6: return .cancel(.claimed(lease), at: date, retains: true)
    case 7: return .restart(.claimed(lease), availableDate: date, forgets: pick(2) == 0)
    case 8: return .extend(lease, for: .seconds(60))
    default: return .release(lease)
    }
  }
}
