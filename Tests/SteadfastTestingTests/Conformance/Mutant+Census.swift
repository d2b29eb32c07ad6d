import Foundation
import SteadfastTesting

/// Stores that return wrong pages of the newest tasks, or a wrong census.
extension Mutant {
  static let newestAndCensus = [
    Mutant("how the last attempt failed is lost", breaks: "end.failures") {
      $0.editShownRecords { $0.failedAttempt = nil }
    },
    Mutant("how earlier attempts failed is lost", breaks: "end.failures") {
      $0.editShownRecords { record in
        record.earlierFailures = record.earlierFailures.map {
          TaskFailure(reason: $0.reason, date: $0.date)
        }
      }
    },
    Mutant("look-ups ignore the dates of failures", breaks: "find.failed") {
      $0.editFilters { $0.failedDates = nil }
    },
    Mutant("the range of the dates of failures is closed", breaks: "find.failed") {
      $0.editFilters { filter in
        filter.failedDates = filter.failedDates.map { $0.lowerBound..<$0.upperBound + 0.5 }
      }
    },
    Mutant("the order of a look-up is ignored", breaks: "find.newest") {
      let page = $0.page
      $0.newestPage = page
    },
    Mutant("a page of the newest tasks continues in the other direction", breaks: "find.newest") {
      $0.newestPage = { tasks, id, limit in
        Array(tasks.reversed().filter { task in id.map { task.id > $0 } ?? true }.prefix(limit))
      }
    },
    Mutant("a page of the oldest tasks is reversed", breaks: "find.newest") {
      $0.newestPage = { tasks, id, limit in
        tasks.filter { task in id.map { task.id < $0 } ?? true }.prefix(limit).reversed()
      }
    },
    Mutant("a census counts only one queue", breaks: "find.census") {
      $0.editCensus { row, _, _ in if !row.queue.isEmpty { row.count = 0 } }
    },
    Mutant("a census ignores ended tasks", breaks: "find.census") {
      $0.editCensus { row, _, _ in if row.state.isFinished { row.count = 0 } }
    },
    Mutant("a census compares names by canonical equivalence", breaks: "find.census") {
      $0.editCensus { row, _, _ in row.name = row.name.precomposedStringWithCanonicalMapping }
    },
    Mutant("a task is due only after its date", breaks: "find.census") {
      $0.editCensus { row, task, now in
        if task.availableDate == now { (row.due, row.oldestDue) = (0, nil) }
      }
    },
    Mutant("a suspended task is due", breaks: "find.census") {
      $0.editCensus { row, task, now in
        guard task.state == .suspended, task.availableDate <= now else { return }
        (row.due, row.oldestDue) = (1, task.availableDate)
      }
    },
    Mutant("a task behind another one is not due", breaks: "find.census") {
      $0.editCensus { row, task, _ in
        if task.orderKey != nil { (row.due, row.oldestDue) = (0, nil) }
      }
    },
    Mutant("a snoozed task is not retried", breaks: "find.census") {
      $0.editCensus { row, task, _ in if task.failedDate == nil { row.retrying = 0 } }
    },
    Mutant("a retried task whose date has come is not retried", breaks: "find.census") {
      $0.editCensus { row, _, _ in if row.due > 0 { row.retrying = 0 } }
    },
    Mutant("a census has the date of the newest due task", breaks: "find.census") {
      $0.census = { tasks, now in
        let rows = TaskCensus(
          date: now,
          rows: tasks.map { TaskCensus.Row(counting: $0, at: now) }
        ).rows
        return TaskCensus(
          date: now,
          rows: rows.map { row in
            var row = row
            let due = tasks.filter { task in
              task.queue == row.queue && task.name == row.name && task.state == .waiting
                && task.availableDate <= now
            }
            if row.due > 0 { row.oldestDue = due.map(\.availableDate).max() }
            return row
          }
        )
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Changes the row of each task before the rows of a census are added.
  fileprivate mutating func editCensus(
    _ body: @escaping @Sendable (inout TaskCensus.Row, TaskRecord, Date) -> Void
  ) {
    census = { tasks, now in
      let rows = tasks.map { task in
        var row = TaskCensus.Row(counting: task, at: now)
        body(&row, task, now)
        return row
      }
      return TaskCensus(date: now, rows: rows)
    }
  }
}
