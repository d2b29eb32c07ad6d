import Foundation
import SteadfastRetry

@testable import SteadfastQueue

/// Makes the calls of a workload at random.
struct SimulatedCaller: Sendable {
  enum Call: Sendable {
    case apply([TaskChange], Durability)
    case claim(ClaimRequest)
  }

  /// The tasks that were claimed and not ended.
  var leases: [Lease] = []
  private let workload: Workload
  private let seed: UInt64
  private var random: SplitMix64
  private var taskCount = 0

  init(_ workload: Workload, seed: UInt64) {
    self.workload = workload
    self.seed = seed
    random = SplitMix64(seed: seed)
  }

  /// A number from zero on, below the limit.
  private mutating func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

  /// Whether one of so many in a hundred comes up.
  mutating func hits(_ share: Int) -> Bool { pick(100) < share }

  /// The calls to make at the same time.
  mutating func nextCalls() -> [Call] {
    (0..<1 + pick(workload.concurrentCalls)).map { _ in makeCall() }
  }

  /// The call to make when another one has returned, though others of its round have not.
  mutating func nextCallAtOnce() -> Call? {
    workload.concurrentCalls > 1 && hits(50) ? makeCall() : nil
  }

  /// Which calls of the disk fail, and how.
  mutating func faults() -> [(call: Int, fault: SimulatedDisk.Fault)] {
    guard workload.faultShare > 0 else { return [] }
    return (1...400).compactMap { call in
      guard pick(1000) < workload.faultShare else { return nil }
      let number = [EIO, ENOSPC, EINTR][pick(3)]
      let faults = [SimulatedDisk.Fault.error(number), .half(number), .short]
      return (call, faults[pick(3)])
    }
  }

  private mutating func makeCall() -> Call {
    if pick(100) < workload.workShare, pick(2) == 0 {
      return .claim(
        ClaimRequest(limit: 1 + pick(4), names: ["A": .max, "B": 2], now: .seconds(500))
      )
    }
    let durability: Durability = pick(100) < workload.relaxedShare ? .relaxed : .durable
    let changes = (0..<1 + pick(workload.batchSize)).map { _ in
      pick(100) < workload.workShare ? makeEnd() : makeInsertion()
    }
    return .apply(changes, durability)
  }

  private mutating func makeInsertion() -> TaskChange {
    taskCount += 1
    let text = String(repeating: "x", count: pick(48))
    let record = TaskRecord(
      id: .numbered(taskCount),
      name: pick(2) == 0 ? "A" : "B",
      payload: StoredPayload(Array(#"{"\#(seed)":"\#(text)"}"#.utf8), format: .json),
      priority: TaskQueue.Priority(rawValue: pick(3)),
      createdDate: .seconds(0),
      uniqueKey: pick(100) < workload.keyedShare ? "key \(pick(3))" : nil,
      availableDate: .seconds(Double(pick(4)))
    )
    return .insert(record, onDuplicate: pick(2) == 0 ? .replace : .keep)
  }

  private mutating func makeEnd() -> TaskChange {
    let date = Date.seconds(Double(100 + pick(10)))
    guard !leases.isEmpty else {
      switch pick(4) {
      case 0: return .unpark(name: "A")
      case 1: return .prune(.succeeded, endedBefore: nil, keepingLatest: 2)
      case 2: return .rebase(date)
      default: return makeInsertion()
      }
    }
    let lease = leases.remove(at: pick(leases.count))
    let failure = TaskFailure(reason: "refused \(seed)", date: date)
    switch pick(6) {
    case 0, 1: return .succeed(lease, at: date, keeps: pick(2) == 0)
    case 2: return .retry(lease, availableDate: date, retryCount: 1, failure: failure)
    case 3: return .abandon(lease, failure: failure, keeps: pick(2) == 0)
    case 4: return .park(lease, failure: failure)
    default: return .release(lease)
    }
  }
}
