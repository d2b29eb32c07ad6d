import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Gathers changes into a batch, as a queue does.
///
/// A batch has at most one change for each task and each value, and no change that depends on the
/// outcome of another one. What would break this, or what no queue would do, is left out.
struct ModelBatch {
  private(set) var changes: [TaskChange] = []
  private let reference: ReferenceTable
  /// The tasks that changes name, new ones too.
  private var touched: Set<TaskID> = []
  /// The tasks that changes concern: those that wait for the changed ones, and so on.
  private var concerned: Set<TaskID> = []
  private var added: Set<TaskID> = []
  /// The tasks that new tasks name.
  private var named: Set<TaskID> = []
  /// The followers of new tasks, each with these.
  private var members: [TaskID: Set<TaskID>] = [:]
  /// The unique keys of the changed tasks, with their queues and names.
  private var keys: Set<[String]> = []
  /// The unique keys of all tasks that changes concern.
  private var concernedKeys: Set<[String]> = []
  /// The names of the batch's values.
  private var names: Set<ExactText> = []

  init(_ reference: ReferenceTable) { self.reference = reference }

  /// The tasks for which new tasks wait, or that wait for them.
  private var awaited: Set<TaskID> { named.union(members.keys) }

  mutating func add(_ change: TaskChange, of id: TaskID) {
    let along = reference.concerned(by: id)
    guard !concerned.contains(id), along.isDisjoint(with: touched),
      along.isDisjoint(with: awaited)
    else { return }
    let keysAlong = keys(of: along)
    guard keys.isDisjoint(with: keysAlong), concernedKeys.isDisjoint(with: keys(of: [id])) else {
      return
    }
    touched.insert(id)
    concerned.formUnion(along)
    keys.formUnion(keys(of: [id]))
    concernedKeys.formUnion(keysAlong)
    changes.append(change)
  }

  private func keys(of ids: Set<TaskID>) -> Set<[String]> {
    Set(ids.compactMap(reference.record).compactMap { $0.nameAndKey })
  }

  mutating func insert(_ record: TaskRecord, _ policy: UniquePolicy) {
    let id = record.id
    guard !touched.contains(id), !named.contains(id), !reference.isAwaited(id),
      mayWait(record)
    else { return }
    if let key = record.nameAndKey {
      guard !keys.contains(key), !concernedKeys.contains(key) else { return }
      let twins = reference.records.filter { $0.isTwin(of: record) }.map(\.id)
      guard awaited.isDisjoint(with: twins) else { return }
      keys.insert(key)
      concerned.formUnion(twins.flatMap(reference.concerned))
    }
    touched.insert(id)
    added.insert(id)
    named.formUnion(record.dependencies.tasks)
    if let follower = record.dependencies.follower {
      members[follower, default: []].insert(id)
    }
    changes.append(.insert(record, onDuplicate: policy))
  }

  /// Returns whether nothing else changes the tasks for which a new one waits, nor its follower.
  ///
  /// Nor may tasks wait for each other in a circle.
  private func mayWait(_ record: TaskRecord) -> Bool {
    let (tasks, follower) = (record.dependencies.tasks, record.dependencies.follower)
    let others = tasks.union(follower.map { [$0] } ?? [])
    guard others.subtracting(added).isDisjoint(with: concerned) else { return false }
    guard let follower else { return true }
    var table = reference
    _ = table.apply(changes)
    return table.concerned(by: follower)
      .isDisjoint(with: tasks.union(members[record.id] ?? []))
  }

  /// Lets a task remember values, in an order of the names that is always the same.
  mutating func remember(_ lease: Lease, _ values: [String: [UInt8]]) {
    let changes = values.sorted { $0.key < $1.key }.map { name, value in
      TaskChange.remember(lease, named: name, value: value)
    }
    let count = self.changes.count
    add(changes[0], of: lease.id)
    // A task has either several of these changes in a batch, or one other change.
    if self.changes.count > count { self.changes += changes.dropFirst() }
  }

  mutating func set(_ name: String, isPresent: Bool, to bytes: [UInt8]?) {
    guard names.insert(ExactText(name)).inserted else { return }
    let present = reference.values[ExactText(name)]
    changes.append(.setValue(named: name, from: isPresent ? present : [0], to: bytes))
  }
}

extension TaskRecord {
  fileprivate var nameAndKey: [String]? { uniqueKey.map { [queue, name, $0] } }
}

extension Date {
  /// Rounds to one of a few dates, so that tasks often have the same date.
  fileprivate static func coarse(_ seconds: Double) -> Date {
    .second((seconds / 40).rounded(.down) * 40)
  }
}

extension TaskRecord {
  static func drawn(_ task: ModelStep.NewTask, at seconds: Double) -> TaskRecord {
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
      dependencies: TaskDependencies(
        on: Set(task.dependencies.map(TaskID.numbered)),
        rule: task.rule,
        follower: task.follower.map(TaskID.numbered)
      ),
      queue: task.queue,
      expiryDate: task.expiresIn.map { .second(seconds + $0) },
      availableDate: .coarse(seconds + task.delay),
      countedFrom: task.number % 2 == 0 ? .second(seconds) : nil
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
    delay: Double,
    awaiting names: [String]
  ) -> TaskChange {
    let date = Date.second(seconds)
    let failure = TaskFailure(reason: "failed at \(seconds)", date: date)
    let later = Date.coarse(seconds + delay)
    let retryCount = Int(delay) % 5
    let origin = retains ? date : nil
    return switch end {
    case .succeed: .succeed(lease, at: date, retains: retains)
    case .retry:
      .retry(lease, availableDate: later, retryCount: retryCount, failure: failure)
    case .retryWithoutFailure:
      .retry(
        lease,
        availableDate: later,
        retryCount: retryCount,
        failure: nil,
        countedFrom: origin
      )
    case .abandon: .abandon(lease, failure: failure, retains: retains)
    case .release: .release(lease)
    case .park: .park(lease, failure: failure)
    case .cancel: .cancel(.claimed(lease), at: date, retains: retains)
    case .pause: .pause(.claimed(lease))
    case .restart: .restart(.claimed(lease), availableDate: later)
    case .restartForgetting: .restart(.claimed(lease), availableDate: later, forgets: true)
    case .reschedule:
      .reschedule(.claimed(lease), availableDate: later, countedFrom: origin)
    case .suspend: .suspend(lease, until: later, awaiting: names, countedFrom: origin)
    case .suspendEndlessly: .suspend(lease, until: .distantFuture, awaiting: names)
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
    case .restartForgetting:
      .restart(.unclaimed(id), availableDate: .coarse(seconds), forgets: true)
    case .reschedule:
      .reschedule(
        .unclaimed(id),
        availableDate: .coarse(seconds),
        countedFrom: retains ? date : nil
      )
    case .update: .update(id, .drawn(at: seconds, changesAll: retains))
    case .remove: .remove(id)
    }
  }
}
