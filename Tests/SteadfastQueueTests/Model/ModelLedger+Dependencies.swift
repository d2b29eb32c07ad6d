import Foundation
import SteadfastTesting

@testable import SteadfastQueue

/// As what tasks were enqueued, and what they have meant for each other since.
extension ModelLedger {
  /// As what a task was enqueued.
  struct Specification: Sendable {
    let task: ModelOperation.NewTask
    let after: Set<TaskID>
    let queue: String
    let enqueued: Date
    /// Whether a task follows when it has ended, and all others of its batch.
    var isMember = false

    /// A task of a batch takes its rule from nowhere.
    var rule: DependencyRule { isMember ? .allSucceeded : task.rule }
  }

  /// Notes tasks that are about to be enqueued, and returns what their handlers do.
  mutating func specify(
    _ task: ModelOperation.NewTask,
    _ after: Set<TaskID>,
    on queue: String,
    at date: Date,
    isMember: Bool
  ) -> [ModelWork] {
    let one = Specification(
      task: task,
      after: after,
      queue: queue,
      enqueued: date,
      isMember: isMember || task.hasFollower
    )
    var all = Array(repeating: one, count: task.count)
    if task.hasFollower {
      var follower = ModelOperation.NewTask(acts: [Act(end: .succeed)])
      follower.rule = task.rule
      follower.maxRetries = 10
      all.append(Specification(task: follower, after: [], queue: queue, enqueued: date))
    }
    return all.map { specification in
      lastNumber += 1
      specifications[lastNumber] = specification
      return ModelWork(number: lastNumber, acts: specification.task.acts)
    }
  }

  func requireDependencies(of record: TaskRecord, _ specification: Specification) {
    let dependencies = record.dependencies
    let isAsEnqueued =
      dependencies.tasks == specification.after && dependencies.rule == specification.rule
      && (dependencies.follower != nil) == specification.isMember
    require(
      isAsEnqueued,
      "\(label(record.id)) was enqueued as \(specification.task), and waits so: \(dependencies)"
    )
  }

  /// A task has changed others, which wait for it.
  mutating func note(_ consequences: Consequences, of change: TaskChange) {
    for id in consequences.tasks {
      switch change {
      case .abandon, .cancel:
        require(entries[id]?.lease == nil, "\(label(id)) is cancelled along while it is performed")
        end(id, .cancelled, event: "cancelledAlong")
        entries[id]?.wasChangedAlong = true
      case .restart:
        require(entries[id]?.hasEnded == true, "\(label(id)) is restarted along before its end")
        expect("restarted", of: id)
        entries[id]?.hasEnded = false
        entries[id]?.failureCount = 0
        entries[id]?.wasChangedAlong = true
      case .remove: removed(id)
      default: require(false, "\(change) concerns \(label(id))")
      }
    }
    guard let batch = consequences.batch else { return }
    require(batch.unfinished >= 0, "the progress of a batch is \(batch)")
    guard let follower = change.taskID.flatMap({ entries[$0]?.follower }) else {
      return require(false, "\(change) of no batch changes its progress to \(batch)")
    }
    progress[follower, default: []].append(batch)
  }

  /// Returns which changes of a batch a store has left out.
  ///
  /// It may answer that one is stale that concerns a task which an earlier one may change along.
  /// The queue then asks for it alone.
  func leftOut(of batch: [TaskChange], _ outcomes: [ChangeOutcome]) -> [Bool] {
    var concerned: Set<TaskID> = []
    return zip(batch, outcomes).map { change, outcome in
      guard let id = change.taskID else { return false }
      defer { concerned.formUnion(table.concerned(by: id)) }
      return outcome == .stale && concerned.contains(id)
    }
  }
}
