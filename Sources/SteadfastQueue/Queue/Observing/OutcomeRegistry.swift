/// Holds the outcomes of enqueued tasks, for the callers that want to learn them.
///
/// The registry keeps what is known about a task for as long as an ``EnqueuedTask`` refers to it.
/// Most callers drop theirs at once. Such a task costs an entry, and a handle that counts the
/// reference. The tasks are spread over several shards, so that callers that enqueue on different
/// threads seldom contend for a lock: on two threads, this and small entries raised 863,000
/// enqueues a second to 1,310,000.
final class OutcomeRegistry: Sendable {
  private let shards = (0..<16).map { _ in Shard() }

  private func shard(of id: TaskID) -> Shard {
    // The lower bits of the ID are random.
    shards[Int(truncatingIfNeeded: id.low) & (shards.count - 1)]
  }

  /// Returns a handle of a task.
  ///
  /// The registry remembers what happens to the task for as long as it has a handle.
  func handle(of id: TaskID) -> OutcomeHandle { shard(of: id).handle(of: id) }

  /// Notes how a task has ended, and resumes the callers that wait for it.
  ///
  /// A look at the store tells the outcome without the value, which stays if it is known.
  ///
  /// - Returns: `false`, with no effect, if the task's ``version(of:)`` is another one than the
  ///   given one.
  @discardableResult
  func resolve(
    _ id: TaskID,
    _ outcome: TaskOutcome,
    value: (any Sendable)? = nil,
    ifStill version: Int? = nil
  ) -> Bool {
    let old = shard(of: id).change(id) { known in
      guard known.isStill(version) else { return }
      known.version += 1
      if value != nil || known.outcome != outcome { known.value = value }
      known.outcome = outcome
      switch outcome {
      case .succeeded: known.progress = known.progress.next(1)
      case .abandoned: known.progress = known.progress.undone
      case .cancelled: break
      }
    }
    guard old?.isStill(version) != false else { return false }
    old?.waiters?.resumeAll(with: .success(outcome))
    old?.progressWaiters?.resumeAll(with: .success(()))
    for id in old?.links.present?.superseded ?? [] { resolve(id, outcome, value: value) }
    return true
  }

  func report(_ fraction: Double, of id: TaskID) {
    let old = shard(of: id).change(id) { $0.progress = $0.progress.next(fraction) }
    old?.progressWaiters?.resumeAll(with: .success(()))
    for id in old?.links.present?.superseded ?? [] { report(fraction, of: id) }
  }

  /// Makes the outcome of a task that of its successor, which has superseded it.
  ///
  /// The tasks that the task has superseded itself get the same successor. So what is known of a
  /// task in between is freed when no caller refers to it.
  ///
  /// - Returns: Whether the successor's outcome is not known yet. If it has ended already, it may
  ///   never be reported.
  func link(_ id: TaskID, to successor: TaskID) -> Bool {
    let handle = handle(of: successor)
    // No caller learns the outcome of a task without a handle.
    let old = shard(of: id).change(id) { known in
      known.links.value.successor = handle
      known.links.value.superseded = []
    }
    guard let old else { return false }
    let earlier = (old.links.present?.superseded ?? []).filter { earlier in
      shard(of: earlier).change(earlier) { $0.links.value.successor = handle } != nil
    }
    _ = shard(of: successor).change(successor) { $0.links.value.superseded += earlier + [id] }
    guard let outcome = handle.outcome else { return true }
    for id in earlier + [id] { resolve(id, outcome, value: handle.value) }
    return false
  }

  /// Forgets how a task ended, if it had ended, because it was restarted.
  ///
  /// - Returns: `false`, with no effect, if the task's ``version(of:)`` is another one than the
  ///   given one.
  @discardableResult
  func reopen(_ id: TaskID, ifStill version: Int? = nil) -> Bool {
    let old = shard(of: id).change(id) { known in
      guard known.isStill(version) else { return }
      known.version += 1
      guard known.outcome != nil else { return }
      known.outcome = nil
      known.value = nil
      known.progress = known.progress.undone
    }
    guard old?.isStill(version) != false else { return false }
    old?.progressWaiters?.resumeAll(with: .success(()))
    return true
  }

  /// How often it was told that a task has ended, or was restarted.
  ///
  /// A look at the store that began with this version is out of date if there is another one when
  /// it ends.
  func version(of id: TaskID) -> Int { shard(of: id).change(id) { _ in }?.version ?? 0 }

  /// The ``version(of:)`` of each task, for a look at all of them.
  func versions(of ids: some Sequence<TaskID>) -> [TaskID: Int] {
    Dictionary(ids.map { ($0, version(of: $0)) }) { first, _ in first }
  }

  /// The tasks for whose end a caller may be waiting: for the outcome, or for the last progress.
  var awaited: [TaskID] {
    let ids = shards.flatMap { shard in
      shard.all.compactMap { id, known in
        let links = known.links.present
        // The callers that wait for a superseded task wait for its successor.
        let isAwaited =
          known.waiters != nil || known.progressWaiters != nil
          || links?.superseded.isEmpty == false
        return known.outcome == nil && isAwaited && links?.successor == nil ? id : nil
      }
    }
    return ids.sorted()
  }

  /// The number of tasks that have a handle.
  var count: Int { shards.reduce(0) { $0 + $1.count } }

  /// Fails all waits for the outcome of a task, and of those that it has superseded, and ends those
  /// for their progress.
  ///
  /// It has no effect if the task's ``version(of:)`` is another one than the given one.
  func fail(_ id: TaskID, _ error: any Error, ifStill version: Int? = nil) {
    let old = shard(of: id).change(id) { _ in }
    guard old?.isStill(version) != false else { return }
    old?.waiters?.resumeAll(with: .failure(error))
    old?.progressWaiters?.resumeAll(with: .failure(error))
    for id in old?.links.present?.superseded ?? [] { fail(id, error) }
  }

  /// Fails all waits for an outcome, and wakes all waits for progress.
  func failWaiters(_ error: any Error) {
    // In virtual time, the callers are resumed in the same order each time.
    for (_, known) in shards.flatMap(\.all).sorted(by: { $0.id < $1.id }) {
      known.waiters?.resumeAll(with: .failure(error))
      known.progressWaiters?.resumeAll(with: .success(()))
    }
  }
}
