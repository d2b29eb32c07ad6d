import Foundation
import SteadfastTesting

@testable import SteadfastQueue

/// Records how tasks were enqueued, and the effects of their changes on their dependents.
extension ModelLedger {
  /// How a task was enqueued.
  struct Specification: Sendable {
    let task: ModelOperation.NewTask
    let after: Set<TaskID>
    let queue: String
    let enqueued: Date
    /// Whether the task belongs to a batch that has a follower.
    var isMember = false

    /// The dependency rule of the task's options or, for a task of a batch, the default rule.
    var rule: DependencyRule { isMember ? .allSucceeded : task.rule }
  }

  /// Records tasks that are about to be enqueued, and returns their payloads.
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
      "\(label(record.id)) was enqueued as \(specification.task), with dependencies \(dependencies)"
    )
  }

  /// Records the effects of a task's change on the task's dependents.
  mutating func recordConsequences(_ consequences: Consequences, of change: TaskChange) {
    for id in consequences.tasks {
      switch change {
      case .end(_, let end) where end.state != .succeeded:
        require(entries[id]?.lease == nil, "a cascade cancels \(label(id)) during its attempt")
        self.end(id, .cancelled, event: "cancelledAlong")
        entries[id]?.wasChangedAlong = true
      case .move(_, let move) where move.kind == .restart:
        require(entries[id]?.hasEnded == true, "a cascade restarts \(label(id)) before its end")
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

  /// Returns for each change of a batch whether the store skipped the change.
  ///
  /// A store may report a change as stale if an earlier change of the batch may also affect the
  /// task. The queue then repeats the stale change alone.
  func skippedChanges(of batch: [TaskChange], _ outcomes: [ChangeOutcome]) -> [Bool] {
    var concerned: Set<TaskID> = []
    return zip(batch, outcomes).map { change, outcome in
      guard let id = change.taskID else { return false }
      defer { concerned.formUnion(table.tasksAffected(byChangeTo: id)) }
      return outcome == .stale && concerned.contains(id)
    }
  }
}
