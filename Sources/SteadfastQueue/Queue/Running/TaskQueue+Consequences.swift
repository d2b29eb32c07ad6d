import Synchronization

/// Reports what the changes to some tasks have meant for others, which waited for them.
extension TaskQueue {
  /// Reports consequences of changes that were stored.
  nonisolated func tell(
    _ consequences: some Sequence<(settlement: Settlement, meaning: Consequences)>
  ) async {
    var ids: [TaskID] = []
    for (settlement, meaning) in consequences {
      tell(meaning, of: settlement)
      ids += meaning.tasks
      // A task that waited for this one may be available now.
      lookForWork()
    }
    // The tasks may have changed again before this was told. A store that fails stops the queue at
    // the next claim.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Learns what a change of another queue on the store has meant for tasks.
  ///
  /// They may be tasks of this queue, or of others. The other queue posts the events.
  nonisolated func hear(_ meaning: Consequences, of change: TaskChange) async {
    for id in meaning.tasks {
      switch change {
      case .abandon, .cancel: observers.outcomes.resolve(id, .cancelled)
      // A restarted task may have ended again by now. Its outcome is corrected below.
      case .restart: break
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
    lookForWork()
    if !meaning.tasks.isEmpty { try? await correctOutcomes(of: meaning.tasks) }
  }

  /// Learns what changes have meant for other tasks whose answer was lost: the store had made them
  /// already when they were sent again.
  ///
  /// Tasks that waited may be available, in the other queues of a group, too. Callers may wait for
  /// tasks that have ended along.
  nonisolated func findLostConsequences() async {
    for queue in queuesOfGroup {
      queue.lookForWork()
      // A store that fails stops the queue at the next claim.
      try? await queue.tellWhatIsStored(of: queue.observers.outcomes.awaited)
    }
  }

  /// This queue, and the others of its group.
  nonisolated var queuesOfGroup: [TaskQueue] { [self] + (backing.group?.otherQueues ?? []) }

  /// Notes that a caller's changes may be stored, though its call has failed.
  ///
  /// What is stored nevertheless is told with the next claim of each queue. A claim may also have
  /// skipped the tasks.
  nonisolated func noteLostAnswer() {
    for queue in queuesOfGroup {
      queue.observers.mayMissEnds.store(true, ordering: .releasing)
      queue.upkeep.withLock { $0.isInDoubt = true }
      queue.lookForWork()
    }
  }

  /// Tells waiting callers what the store has of their tasks, after a call that has failed.
  ///
  /// - Throws: What the store throws; the next claim looks again.
  nonisolated func endDoubt() async throws {
    upkeep.withLock { $0.isInDoubt = false }
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      upkeep.withLock { $0.isInDoubt = true }
      throw error
    }
  }

  private nonisolated func tell(_ meaning: Consequences, of settlement: Settlement) {
    let cause = settlement.record.id
    if let batch = meaning.batch, let follower = settlement.record.dependencies.follower {
      observers.events.post(.batchProgressed(followedBy: follower, batch))
    }
    for id in meaning.tasks {
      switch settlement.change {
      case .abandon, .cancel: observers.cancelledAlong(id, because: cause)
      case .restart:
        observers.restartedAlong(id)
        upkeep.withLock { $0.notice.lookIsDue() }
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
  }

  /// Makes the known outcomes of tasks those that the store has.
  ///
  /// What is told of a task during a look may be newer than what the look has found. Such a task is
  /// looked at again.
  private nonisolated func correctOutcomes(of ids: [TaskID]) async throws {
    var remaining = ids
    while !remaining.isEmpty {
      var outdated: [TaskID] = []
      for page in remaining.lookUpPages {
        let versions = observers.outcomes.versions(of: page)
        let filter = TaskFilter(ids: Set(page))
        let records = try await store.tasks(matching: filter, after: nil, limit: page.count)
        for record in records where !isCorrected(record, ifStill: versions[record.id]) {
          outdated.append(record.id)
        }
      }
      remaining = outdated
    }
  }

  /// Makes the known outcome of a task that of a record, unless another one was told since a look
  /// began, and returns whether none was.
  private nonisolated func isCorrected(_ record: TaskRecord, ifStill version: Int?) -> Bool {
    guard let outcome = record.outcome else {
      return observers.outcomes.reopen(record.id, ifStill: version)
    }
    return observers.outcomes.resolve(record.id, outcome, ifStill: version)
  }
}
