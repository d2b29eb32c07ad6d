import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Gathers changes into a batch, as a queue does.
///
/// A batch has at most one change for each task, and no change that depends on the outcome of
/// another one.
struct ModelBatch {
  private(set) var changes: [TaskChange] = []
  /// The index of the first insertion that refuses the batch.
  private(set) var firstRefusal: Int?
  private let reference: ReferenceTable
  private var touched: Set<TaskID> = []
  private var keys: Set<String> = []

  init(_ reference: ReferenceTable) { self.reference = reference }

  mutating func add(_ change: TaskChange, of id: TaskID) {
    guard touched.insert(id).inserted else { return }
    changes.append(change)
  }

  mutating func insert(_ task: ModelStep.NewTask, at seconds: Double) {
    let id = TaskID.numbered(task.number)
    guard !touched.contains(id) else { return }
    if let key = task.key {
      let twin = reference.entries.first { $0.holdsKey && $0.record.uniqueKey == key }?.record.id
      guard !keys.contains(key), twin.map({ touched.insert($0).inserted }) ?? true else { return }
      keys.insert(key)
      if twin != nil, task.policy == .reject { noteRefusal() }
    }
    if reference.record(of: id) != nil { noteRefusal() }
    add(.insert(TaskRecord.drawn(task, at: seconds), onDuplicate: task.policy), of: id)
  }

  private mutating func noteRefusal() { firstRefusal = firstRefusal ?? changes.count }
}

extension Date {
  /// Rounds to one of a few dates, so that tasks often have the same date.
  fileprivate static func coarse(_ seconds: Double) -> Date {
    .second((seconds / 40).rounded(.down) * 40)
  }
}

extension TaskRecord {
  fileprivate static func drawn(_ task: ModelStep.NewTask, at seconds: Double) -> TaskRecord {
    TaskRecord(
      id: .numbered(task.number),
      name: task.name,
      payload: StoredPayload(Array("\(task.number)".utf8), format: .json),
      priority: TaskQueue.Priority(rawValue: task.priority),
      createdDate: .second(seconds),
      uniqueKey: task.key,
      availableDate: .coarse(seconds + task.delay)
    )
  }
}

extension TaskUpdate {
  /// Makes an update that changes almost everything, or only the priority.
  fileprivate static func drawn(at seconds: Double, changesAll: Bool) -> TaskUpdate {
    let number = Int(seconds) % 7
    guard changesAll else { return TaskUpdate(priority: .init(rawValue: number % 3 - 1)) }
    return TaskUpdate(
      payload: StoredPayload([UInt8(number)], format: .binary, version: number + 1),
      priority: number % 2 == 0 ? .init(rawValue: number % 3 - 1) : nil,
      maxRetries: number % 3 == 0 ? .alwaysRetry : .atMost(number),
      usesBackoff: number % 2 == 0,
      timeLimit: .seconds(number + 1),
      expiryDate: .second(1e6 + seconds),
      tags: number % 3 == 0 ? [] : ["tag \(number)"]
    )
  }
}

extension TaskChange {
  static func ending(
    _ lease: Lease,
    _ end: ModelStep.End,
    retains: Bool,
    at seconds: Double,
    delay: Double
  ) -> TaskChange {
    let date = Date.second(seconds)
    let failure = TaskFailure(reason: "failed at \(seconds)", date: date)
    let later = Date.coarse(seconds + delay)
    let retryCount = Int(delay) % 5
    return switch end {
    case .succeed: .succeed(lease, at: date, retains: retains)
    case .retry:
      .retry(lease, availableDate: later, retryCount: retryCount, failure: failure)
    case .retryWithoutFailure:
      .retry(lease, availableDate: later, retryCount: retryCount, failure: nil)
    case .abandon: .abandon(lease, failure: failure, retains: retains)
    case .release: .release(lease)
    case .park: .park(lease, failure: failure)
    case .cancel: .cancel(.claimed(lease), at: date, retains: retains)
    case .pause: .pause(.claimed(lease))
    case .restart: .restart(.claimed(lease), availableDate: later)
    case .reschedule: .reschedule(.claimed(lease), availableDate: later)
    }
  }

  static func controlling(
    _ id: TaskID,
    _ control: ModelStep.Control,
    retains: Bool,
    at seconds: Double
  ) -> TaskChange {
    let date = Date.second(seconds)
    return switch control {
    case .cancel: .cancel(.unclaimed(id), at: date, retains: retains)
    case .pause: .pause(.unclaimed(id))
    case .resume: .resume(id)
    case .restart: .restart(.unclaimed(id), availableDate: .coarse(seconds))
    case .reschedule: .reschedule(.unclaimed(id), availableDate: .coarse(seconds))
    case .update: .update(id, .drawn(at: seconds, changesAll: retains))
    case .remove: .remove(id)
    }
  }
}
