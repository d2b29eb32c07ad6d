/// Which tasks wait for which, and which of them a staged change will change along with another.
///
/// A follower is known by its ID, because it may come into the table after the tasks of its batch.
struct DependencyGraph: Sendable {
  /// Which tasks name which others.
  var edges = DependencyEdges()
  /// The progress of each batch whose follower is not in the table.
  private var progress: [TaskID: BatchProgress] = [:]
  /// How many staged changes to other tasks change each task.
  private var bindings: [TaskID: Int] = [:]
  /// How many of these changes cancel the task, or may.
  private var cancellations: [TaskID: Int] = [:]
  /// What the staged change to each task holds.
  private var staged: [TaskID: Binding] = [:]

  /// What a staged change to a task holds of other tasks.
  struct Binding: Sendable {
    /// The tasks that no claim and no other change takes.
    var tasks: [TaskID] = []
    /// Whether these tasks are cancelled along, unless it turns out otherwise.
    var cancels = false
    /// The tasks that are not restarted with it, because another task has their unique key.
    var excluded: [TaskID] = []
  }

  /// Whether no task waits for another one, or has waited.
  var isEmpty: Bool { edges.isEmpty && progress.isEmpty }

  // MARK: Batches without a follower

  /// Changes the progress of a batch whose follower is not in the table.
  ///
  /// When the last of its tasks ends, nothing needs it any more.
  mutating func changeProgress(ofBatch id: TaskID, _ change: (inout BatchProgress) -> Void) {
    let before = progress[id] ?? BatchProgress()
    var batch = before
    change(&batch)
    progress[id] = batch.unfinished > 0 || batch.total > before.total ? batch : nil
  }

  /// Takes the progress of a batch whose follower comes into the table.
  mutating func takeProgress(ofBatch id: TaskID) -> BatchProgress? {
    progress.isEmpty ? nil : progress.removeValue(forKey: id)
  }

  // MARK: Staged changes

  /// Whether a staged change to another task will change this one.
  func isBound(_ id: TaskID) -> Bool { bindings[id] != nil }

  /// Whether a staged change to another task will cancel this one, or may.
  func isBeingCancelled(_ id: TaskID) -> Bool { cancellations[id] != nil }

  /// Notes what the staged change to a task holds.
  mutating func bind(_ binding: Binding, for id: TaskID) {
    for other in binding.tasks {
      bindings[other, default: 0] += 1
      if binding.cancels { cancellations[other, default: 0] += 1 }
    }
    staged[id] = binding
  }

  /// Takes back what the staged change to a task holds.
  mutating func unbind(for id: TaskID) -> Binding {
    guard let binding = staged.removeValue(forKey: id) else { return Binding() }
    for other in binding.tasks {
      Self.subtractOne(from: &bindings, for: other)
      if binding.cancels { Self.subtractOne(from: &cancellations, for: other) }
    }
    return binding
  }

  private static func subtractOne(from counts: inout [TaskID: Int], for id: TaskID) {
    let count = (counts[id] ?? 1) - 1
    counts[id] = count == 0 ? nil : count
  }

  /// The tasks that a staged restart leaves as they are, because their keys are held.
  func excluded(byRestartOf id: TaskID) -> [TaskID] { staged[id]?.excluded ?? [] }
}
