import Foundation
import SteadfastTesting

/// Stores that apply a change incorrectly.
extension Mutant {
  static let ends = [
    Mutant("a task that succeeded is always removed", breaks: "end.succeed") {
      $0.rewrite = { change in
        guard case .end(.claimed(let lease), let end) = change, end.state == .succeeded else {
          return change
        }
        return .succeed(lease, at: end.date, retains: false)
      }
    },
    Mutant("a failure has the date of the retry", breaks: "end.retry") {
      $0.editChangedTask { change, entry, _ in
        if case .move(_, let move) = change, move.kind == .retry, let date = move.availableDate,
          move.failure != nil
        {
          entry.record.failedDate = date
        }
      }
    },
    Mutant("a retry without a failure forgets the error", breaks: "end.retry-without-failure") {
      $0.editChangedTask { change, entry, _ in
        if case .move(_, let move) = change, move.kind == .retry, move.failure == nil {
          entry.record.lastError = nil
        }
      }
    },
    Mutant("only the last failure is stored", breaks: "end.failures") {
      $0.editChangedTask { _, entry, _ in entry.record.earlierFailures = [] }
    },
    Mutant("the latest failure comes first", breaks: "end.failures") {
      $0.editShownRecords { $0.earlierFailures.reverse() }
    },
    Mutant("the texts of earlier failures are not shortened", breaks: "end.failures") {
      $0.editChangedTask { _, entry, before in
        guard let last = before?.record.failures.last, !entry.record.earlierFailures.isEmpty,
          entry.record.earlierFailures.last?.date == last.date
        else { return }
        entry.record.earlierFailures[entry.record.earlierFailures.count - 1] = last
      }
    },
    Mutant("a restart keeps the earlier failures", breaks: "end.failures") {
      $0.editChangedTask { change, entry, before in
        guard change.move?.kind == .restart else { return }
        entry.record.earlierFailures = before?.record.earlierFailures ?? []
      }
    },
    Mutant("the error of an abandoned task is lost", breaks: "end.abandon") {
      $0.editChangedTask { change, entry, before in
        if change.end?.state == .abandoned { entry.record.lastError = before?.record.lastError }
      }
    },
    Mutant("a release counts as an interruption", breaks: "end.release") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .release { entry.record.interruptionCount += 1 }
      }
    },
    Mutant("a parked task waits again", breaks: "end.park") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .park { entry.record.state = .waiting }
      }
    },
    Mutant("the version of a parked task is lost", breaks: "end.park") {
      $0.editShownRecords { $0.parkedVersion = nil }
    },
    Mutant("unparking below a version unparks all", breaks: "end.unpark-below") {
      $0.afterEachChange { change, _, table in
        if case .broad(.unpark(let name, _, _?)) = change { table.unpark(name) }
      }
    },
    Mutant("unparking below a version includes that version", breaks: "end.unpark-below") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.unpark(let name, _, let version?)) = change, version < .max else {
          return
        }
        table.unpark(name, below: version + 1)
      }
    },
    Mutant("unparking below a version omits tasks without a version", breaks: "end.unpark-below") {
      $0.rewrite = { change in
        guard case .move(.claimed(let lease), let move) = change, move.kind == .park,
          move.knownVersion == nil, let failure = move.failure
        else { return change }
        return .park(lease, failure: failure, knownVersion: .max)
      }
    },
    Mutant("unparking one name unparks others too", breaks: "end.unpark") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.unpark) = change else { return }
        for name in ["A", "B", "C"] { table.unpark(name) }
      }
    },
    Mutant("cancelling a claimed task releases it", breaks: "end.claimed-control") {
      $0.rewrite = { change in
        guard case .end(.claimed(let lease), let end) = change, end.state == .cancelled else {
          return change
        }
        return .release(lease)
      }
    },
  ]

  static let leases = [
    Mutant("a stale change is reported as done", breaks: "lease.twice") {
      $0.replaceOutcomes { $1 == .stale ? .done : $1 }
    },
    Mutant("a lease's token is ignored", breaks: "lease.old") { $0.ignoreLeaseTokens() },
    Mutant("a forged lease is valid", breaks: "lease.forged") { $0.ignoreLeaseTokens() },
    Mutant("a pause for unclaimed tasks pauses a running one", breaks: "lease.unclaimed") {
      $0.apply = { batch, table in
        let held = Dictionary(
          table.entries.compactMap { entry in entry.lease.map { (entry.record.id, $0) } }
        ) { $1 }
        return table.apply(
          batch.map { change in
            guard case .move(.unclaimed(let id), let move) = change, move.kind == .pause,
              let lease = held[id]
            else {
              return change
            }
            return .pause(.claimed(lease))
          }
        )
      }
    },
  ]

  static let control = [
    Mutant("the date of a cancellation is lost", breaks: "control.cancel") {
      $0.editChangedTask { change, entry, _ in
        if change.end?.state == .cancelled { entry.record.finishedDate = nil }
      }
    },
    Mutant("a pause resets the retries", breaks: "control.pause") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .pause { entry.record.retryCount = 0 }
      }
    },
    Mutant("resuming resets the retries", breaks: "control.resume") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .resume { entry.record.retryCount = 0 }
      }
    },
    Mutant("a restart keeps the last error", breaks: "control.restart") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .restart { entry.record.lastError = before?.record.lastError }
      }
    },
    Mutant("a restart keeps an expiry date that has passed", breaks: "control.expiry") {
      $0.editChangedTask { change, entry, before in
        guard change.move?.kind == .restart, let before, before.record.expiryDate != nil else {
          return
        }
        let present = entry.record
        entry.record = before.record
        entry.record.availableDate = present.availableDate
        entry.record.state = present.state
      }
    },
    Mutant("rescheduling resets the retries", breaks: "control.reschedule") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .reschedule { entry.record.retryCount = 0 }
      }
    },
    Mutant("an update leaves the tags", breaks: "control.update") {
      $0.rewrite = { change in
        guard case .update(let id, var update) = change else { return change }
        update.tags = nil
        return .update(id, update)
      }
    },
    Mutant("an update resets the retries", breaks: "control.update") {
      $0.editChangedTask { change, entry, _ in
        if case .update = change { entry.record.retryCount = 0 }
      }
    },
    Mutant("an updated task always moves to the end", breaks: "control.update-place") {
      $0.editChangedTask { change, entry, _ in
        if case .update = change { entry.place += 1_000 }
      }
    },
    Mutant("a task with a new priority keeps its position", breaks: "control.update-place") {
      $0.editChangedTask { change, entry, before in
        if case .update = change, let before { entry.place = before.place }
      }
    },
    Mutant("a paused task can be removed", breaks: "control.remove") {
      $0.apply = { batch, table in
        let paused = Set(table.records.filter { $0.state == .paused }.map(\.id))
        return table.apply(
          batch.map { change in
            guard case .remove(let id) = change, paused.contains(id) else { return change }
            return .cancel(.unclaimed(id), at: .distantPast, retains: false)
          }
        )
      }
    },
    Mutant("a change to a missing task is done", breaks: "control.unknown") {
      $0.apply = { batch, table in
        let known = Set(table.records.map(\.id))
        return zip(batch, table.apply(batch)).map { change, outcome in
          change.affectedTask.map { !known.contains($0) } ?? false ? .done : outcome
        }
      }
    },
  ]

  static let ended = [
    Mutant("pruning retains one task too many", breaks: "prune.count") {
      $0.rewrite = { change in
        guard case .broad(.prune(let state, let date, let count, let now, _)) = change else {
          return change
        }
        return .prune(state, endedBefore: date, keepingLatest: count.map { $0 + 1 }, now: now)
      }
    },
    Mutant("pruning removes a task that ended at the very date", breaks: "prune.date") {
      $0.rewrite = { change in
        guard case .broad(.prune(let state, let date, let count, let now, _)) = change else {
          return change
        }
        return .prune(state, endedBefore: date.map { $0 + 0.125 }, keepingLatest: count, now: now)
      }
    },
    Mutant("a rebase changes no dates", breaks: "rebase.dates") {
      $0.apply = { batch, table in
        batch.map { change in
          if case .broad(.rebase) = change { return .done }
          return table.apply([change])[0]
        }
      }
    },
    Mutant("a rebase moves chosen dates", breaks: "rebase.dates") {
      $0.editRebasedTasks { entry, before, now in
        guard before.countedFrom == nil, before.availableDate > now else { return }
        entry.record.availableDate = now
      }
    },
    Mutant("a second rebase moves dates again", breaks: "rebase.dates") {
      $0.editRebasedTasks { entry, before, now in
        guard let origin = before.countedFrom, before.availableDate > now else { return }
        entry.record.availableDate = now + before.availableDate.timeIntervalSince(origin)
        entry.record.countedFrom = origin
      }
    },
    Mutant("a rebase leaves snoozes", breaks: "rebase.changes") {
      $0.editRebasedTasks { entry, before, _ in
        guard before.isPostponed, before.failedDate == nil else { return }
        entry.record.availableDate = before.availableDate
      }
    },
    Mutant("a rebase moves a date chosen after a failure", breaks: "rebase.changes") {
      $0.editRebasedTasks { entry, before, now in
        guard let failed = before.failedDate, failed > now, before.state == .waiting else { return }
        entry.record.availableDate = now + before.availableDate.timeIntervalSince(failed)
      }
    },
    Mutant("a rebase leaves the uniqueness window of a task that ended", breaks: "rebase.keys") {
      $0.editRebasedTasks { entry, before, _ in
        guard before.state == .succeeded else { return }
        entry.record = before
      }
    },
    Mutant("a rebase reverses the order", breaks: "rebase.order") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.rebase) = change else { return }
        for index in table.entries.indices { table.entries[index].place *= -1 }
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Runs `body` on each entry after a rebase; `body` also gets the record before the rebase and
  /// the new date.
  fileprivate mutating func editRebasedTasks(
    _ body: @escaping @Sendable (inout ReferenceTable.Entry, TaskRecord, Date) -> Void
  ) {
    afterEachChange { change, before, table in
      guard case .broad(.rebase(let now)) = change else { return }
      for index in table.entries.indices {
        guard let old = before.record(of: table.entries[index].record.id) else { continue }
        body(&table.entries[index], old, now)
      }
    }
  }

  /// Accepts a lease with any token, if the task is claimed.
  fileprivate mutating func ignoreLeaseTokens() {
    apply = { batch, table in
      let held = Dictionary(
        table.entries.compactMap { entry in entry.lease.map { (entry.record.id, $0) } }
      ) { $1 }
      return table.apply(batch.map { change in change.replacingLease { held[$0.id] ?? $0 } })
    }
  }
}
