#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Takes back steps of schedules that were stored without the ends of their occurrences.
extension TaskQueue {
  /// Takes a step of a schedule back, unless its occurrence has ended all the same.
  ///
  /// A stale change is left out of its batch, and the rest of the batch is stored. If another
  /// process performs the occurrence, a later one must not be added beside it, and the end that the
  /// other process stores must find the schedule as it was.
  ///
  /// If this process dies before it is done, the later occurrence stays. It begins on its date even
  /// if the one before is still under way then, whose end adds nothing. So two may overlap once. No
  /// date is lost, and none is performed twice.
  ///
  /// The batch can't depend on the end. A store compares only values, and no value changes when an
  /// occurrence is claimed. If both occurrences had one unique key, or the later one waited for the
  /// other, it would depend on the end; but a batch must not have a new task that one of its other
  /// changes concerns in these ways (``Persistence``). And if the end were stored first, a process
  /// that died then would leave a schedule without an occurrence, which is worse.
  ///
  /// - Returns: Whether it was taken back. If not, the schedule has gone on.
  /// - Throws: What the store throws.
  nonisolated func takeBack(_ step: ScheduleStep) async throws -> Bool {
    guard let before = step.before, let id = before.id, try await isUnfinished(id),
      try await goBack(from: step, to: before)
    else { return false }
    // If it has ended in between, nothing has come after it.
    if try await !isUnfinished(id) {
      let end = OccurrenceEnd(0, id, ofQueue: step.key.queue)
      _ = try await sendStep(after: end, with: [])
    }
    return true
  }

  private nonisolated func isUnfinished(_ id: TaskID) async throws -> Bool {
    let filter = TaskFilter(ids: [id], queue: nil, states: TaskState.unfinished)
    return try await store.contains(filter)
  }

  /// Sets a schedule as it was before a step, and removes the occurrence that the step has added.
  ///
  /// - Returns: Whether it is done; `false` if the schedule has gone on, or that one has begun.
  private nonisolated func goBack(
    from step: ScheduleStep,
    to before: StoredSchedule
  ) async throws -> Bool {
    let key = step.key
    var retries = 0
    for _ in 0..<Self.mostLooks {
      guard let (present, bytes) = try await storedSchedule(key),
        present.id == step.schedule.id, present.date == step.schedule.date
      else { return false }
      let earlier = bytes == step.bytes ? before : present.goingBack(to: before)
      let earlierBytes = try earlier.bytes
      var changes = [TaskChange.setValue(named: key.valueName, from: bytes, to: earlierBytes)]
      if let next = step.next {
        changes.append(.cancel(.unclaimed(next.id), at: now, retains: false))
      }
      do {
        let outcomes = try await send(changes).outcomes
        if outcomes.contains(.valueDiffers) { continue }
        guard outcomes.last == .stale else { return true }
        // The later occurrence has begun, so it stays the current one.
        _ = try await send([.setValue(named: key.valueName, from: earlierBytes, to: bytes)])
        return false
      } catch {
        try await waitToRepeat(after: error, &retries)
      }
    }
    return false
  }
}
