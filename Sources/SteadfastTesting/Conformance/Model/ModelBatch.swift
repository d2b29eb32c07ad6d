import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Gathers changes into a batch, as a queue does.
///
/// A batch has at most one change for each task and each value, and no change that depends on the
/// outcome of another one.
struct ModelBatch {
  private(set) var changes: [TaskChange] = []
  /// The index of the first insertion that refuses the batch.
  private(set) var firstRefusal: Int?
  private let reference: ReferenceTable
  private var touched: Set<TaskID> = []
  /// The unique keys of the batch's tasks, with their names.
  private var keys: Set<[String]> = []
  /// The names of the batch's values.
  private var names: Set<ExactText> = []

  init(_ reference: ReferenceTable) { self.reference = reference }

  mutating func add(_ change: TaskChange, of id: TaskID) {
    guard !touched.contains(id) else { return }
    if let record = reference.record(of: id), let key = record.uniqueKey {
      guard keys.insert([record.name, key]).inserted else { return }
    }
    touched.insert(id)
    changes.append(change)
  }

  mutating func insert(_ task: ModelStep.NewTask, at seconds: Double) {
    let id = TaskID.numbered(task.number)
    guard !touched.contains(id) else { return }
    let record = TaskRecord.drawn(task, at: seconds)
    if let key = task.key {
      guard keys.insert([task.name, key]).inserted else { return }
      if task.policy == .reject, reference.refuses(record) { noteRefusal() }
    }
    if reference.record(of: id) != nil { noteRefusal() }
    touched.insert(id)
    changes.append(.insert(record, onDuplicate: task.policy))
  }

  mutating func set(_ name: String, isPresent: Bool, to bytes: [UInt8]?) {
    guard names.insert(ExactText(name)).inserted else { return }
    let present = reference.values[ExactText(name)]
    changes.append(.setValue(named: name, from: isPresent ? present : [0], to: bytes))
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
      uniqueUntil: task.uniqueFor.map { .second(seconds + $0) },
      latestDate: task.maxDelay.map { .coarse(seconds + $0) },
      orderKey: task.order,
      holdsOrder: task.holds,
      conditions: task.conditions,
      availableDate: .coarse(seconds + task.delay)
    )
  }
}

extension TaskUpdate {
  /// Makes an update that changes almost everything, or only the priority.
  fileprivate static func drawn(at seconds: Double, changesAll: Bool) -> TaskUpdate {
    let number = abs(Int(seconds)) % 7
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
