import Foundation
import SteadfastTesting

/// Stores that break a rule about suspended tasks.
extension Mutant {
  static let suspension = [
    Mutant("a suspension counts as a retry", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, before in
        if case .memory(.suspend) = change {
          entry.record.retryCount = before.record.retryCount + 1
        }
      }
    },
    Mutant("a suspension clears the retries", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, _ in
        if case .memory(.suspend) = change { entry.record.retryCount = 0 }
      }
    },
    Mutant("a suspension does not reset the interruptions", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, before in
        guard case .memory(.suspend) = change else { return }
        entry.record.interruptionCount = before.record.interruptionCount
      }
    },
    Mutant("a suspended task is postponed", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, _ in
        if case .memory(.suspend) = change { entry.record.isPostponed = true }
      }
    },
    Mutant("a suspended task stays leased", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, before in
        if case .memory(.suspend) = change { entry.lease = before.lease }
      }
    },
    Mutant("a suspended task is waiting", breaks: "suspension.suspended") {
      $0.editSuspendedTask { change, entry, _ in
        if case .memory(.suspend) = change { entry.record.state = .waiting }
      }
    },
    Mutant("releasing a task suspends it again", breaks: "suspension.suspended") {
      $0.editChangedTask { change, entry, _ in
        guard change.move?.kind == .release, entry.record.retryCount == 3 else { return }
        entry.record.state = .suspended
      }
    },
    Mutant("a suspended task keeps its position", breaks: "suspension.due") {
      $0.editSuspendedTask { change, entry, before in
        if case .memory(.suspend) = change { entry.place = before.place }
      }
    },
    Mutant("suspended tasks come last", breaks: "suspension.due") {
      $0.goesBefore = { left, right in
        let isDeferred = left.record.state == .suspended
        let isRight = right.record.state == .suspended
        return isDeferred == isRight ? left.rank < right.rank : isRight
      }
    },
    Mutant("suspended tasks have no next date", breaks: "suspension.due") {
      $0.nextDate = { date, request, table in
        let later = table.waiting.map(\.record).filter {
          $0.state == .waiting && $0.availableDate > request.now
        }
        return date == request.now ? date : later.map(\.availableDate).min()
      }
    },
    Mutant("the distant future is a next date", breaks: "suspension.endless") {
      $0.nextDate = { date, _, table in
        let suspended = table.records.filter { $0.state == .suspended }.map(\.availableDate)
        return date ?? suspended.min()
      }
    },
    Mutant("a suspension until the distant future waits", breaks: "suspension.endless") {
      $0.editSuspendedTask { change, entry, _ in
        guard case .memory(.suspend(_, let date, _, _)) = change, date >= .distantFuture else {
          return
        }
        entry.record.state = .waiting
      }
    },
    Mutant("a suspension beyond the distant future waits", breaks: "suspension.endless") {
      $0.editSuspendedTask { change, entry, _ in
        guard case .memory(.suspend(_, let date, _, _)) = change, date > .distantFuture else {
          return
        }
        entry.record.state = .waiting
      }
    },
    Mutant("a suspension ignores completions that came before", breaks: "suspension.awaited") {
      $0.replaceAwaitedNames { _, _ in [] }
    },
    Mutant("only the first name is awaited", breaks: "suspension.awaited") {
      $0.replaceAwaitedNames { names, _ in Array(names.prefix(1)) }
    },
    Mutant("any completion wakes a task that awaits a name", breaks: "suspension.awaited") {
      $0.replaceAwaitedNames { names, memory in names.isEmpty ? [] : memory.keys.map(\.text) }
    },
    Mutant("an open name counts as completed", breaks: "suspension.awaited") {
      $0.editChangedTask { change, entry, _ in
        guard case .memory(.suspend(_, _, let names, _)) = change, names == ["open"] else { return }
        entry.wake()
      }
    },
    Mutant("awaited names are normalised", breaks: "suspension.awaited") {
      $0.replaceAwaitedNames { names, _ in names.map(\.precomposedStringWithCanonicalMapping) }
    },
    Mutant("a task that wakes at once has its suspension's date", breaks: "suspension.awaited") {
      $0.editChangedTask { change, entry, _ in
        guard case .memory(.suspend(_, let date, _, _)) = change, entry.record.state == .waiting
        else {
          return
        }
        entry.record.availableDate = date
      }
    },
    Mutant("a suspended task is not cancelled", breaks: "suspension.controlled") {
      $0.ignoreChangesToSuspended { $0.end?.state == .cancelled }
    },
    Mutant("a suspended task is not updated", breaks: "suspension.controlled") {
      $0.ignoreChangesToSuspended { if case .update = $0 { true } else { false } }
    },
    Mutant("a suspended task that is paused keeps its date", breaks: "suspension.controlled") {
      $0.editSuspendedTask { change, entry, before in
        if change.move?.kind == .pause { entry.record.availableDate = before.record.availableDate }
      }
    },
    Mutant("a rescheduled suspended task stays suspended", breaks: "suspension.controlled") {
      $0.editSuspendedTask { change, entry, _ in
        if change.move?.kind == .reschedule { entry.record.state = .suspended }
      }
    },
    Mutant("resuming wakes a suspended task", breaks: "suspension.controlled") {
      $0.rewrite = { change in
        guard case .move(.unclaimed(let id), let move) = change, move.kind == .resume else {
          return change
        }
        return .reschedule(.unclaimed(id), availableDate: .distantPast)
      }
    },
    Mutant("a rebase wakes no task", breaks: "suspension.rebase") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard case .broad(.rebase) = batch.first else { return outcomes }
        for index in table.entries.indices {
          let id = table.entries[index].record.id
          guard let old = before.record(of: id), old.state == .suspended else { continue }
          table.entries[index].record = old
        }
        return outcomes
      }
    },
    Mutant("a rebase wakes each task", breaks: "suspension.rebase") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.rebase) = change else { return }
        for index in table.entries.indices
        where table.entries[index].record.state == .suspended { table.entries[index].wake() }
      }
    },
  ]

  static let suspensionAndOthers = [
    Mutant("a suspended task loses its turn in its order key", breaks: "suspension.order") {
      $0.editSuspendedTask { change, entry, _ in
        if case .memory(.suspend) = change { entry.number += 1_000_000 }
      }
    },
    Mutant("a suspended task is not replaced", breaks: "suspension.unique") {
      $0.apply = { batch, table in
        table.apply(
          batch.map { change in
            guard case .insert(let record, .replace) = change,
              table.records.contains(where: { $0.state == .suspended && $0.isTwin(of: record) })
            else { return change }
            return .insert(record, onDuplicate: .keep)
          }
        )
      }
    },
    Mutant("a replaced task stays suspended", breaks: "suspension.unique") {
      $0.editReplacedTask { entry, before in
        if before.record.state == .suspended { entry.record.state = .suspended }
      }
    },
    Mutant("a replaced task keeps its position", breaks: "suspension.unique") {
      $0.editReplacedTask { entry, before in entry.place = before.place }
    },
    Mutant("cancellations do not cascade to suspended tasks", breaks: "suspension.dependencies") {
      $0.afterEachChange { change, before, table in
        guard change.end?.state == .abandoned else { return }
        for entry in before.entries where entry.record.state == .suspended {
          table.edit(entry.record.id) { $0.record.state = .suspended }
        }
      }
    },
    Mutant("a suspended task loses its dependencies", breaks: "suspension.dependencies") {
      $0.editSuspendedTask { change, entry, _ in
        guard case .memory(.suspend) = change else { return }
        entry.record.dependencies.tasks = []
      }
    },
  ]
}
