import Foundation
import SteadfastTesting
import TestSupport

/// Stores that report other outcomes than they store, or find other tasks than they store.
extension Mutant {
  static let batches = [
    Mutant("an empty batch has an outcome", breaks: "batch.outcomes") {
      $0.apply = { batch, table in batch.isEmpty ? [.done] : table.apply(batch) }
    },
    Mutant("only 500 changes of a batch are stored", breaks: "batch.large") {
      $0.apply = { batch, table in
        table.apply(Array(batch.prefix(500))) + batch.dropFirst(500).map { _ in .done }
      }
    },
    Mutant("a stale change rejects its batch", breaks: "batch.stale") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard outcomes.contains(.stale) else { return outcomes }
        table = before
        return outcomes.map { $0 == .done ? .batchRefused : $0 }
      }
    },
    Mutant("a batch is not atomic", breaks: "batch.rejected") {
      $0.apply = { batch, table in batch.map { table.apply([$0])[0] } }
    },
    Mutant("changes before a duplicate ID are stored", breaks: "batch.identity-taken") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard let index = outcomes.firstIndex(of: .identityTaken) else { return outcomes }
        table = before
        _ = table.apply(Array(batch.prefix(index)))
        return outcomes
      }
    },
    Mutant("a repeated insertion is rejected", breaks: "batch.sent-again") {
      $0.replaceBatchOutcomes { batch, isTaken, table in
        isTaken.contains(true) ? isTaken.map { $0 ? .identityTaken : .batchRefused } : nil
      }
    },
    Mutant("a different task with the same ID counts as a repetition", breaks: "batch.sent-again") {
      $0.replaceBatchOutcomes { batch, isTaken, table in
        var outcomes = table.apply(zip(batch, isTaken).filter { !$1 }.map(\.0)).makeIterator()
        return isTaken.map { $0 ? .done : outcomes.next() ?? .stale }
      }
    },
    Mutant("a repeated insertion replaces the task", breaks: "batch.sent-again") {
      $0.replaceBatchOutcomes { batch, isTaken, table in
        let ids = Set(zip(batch, isTaken).filter(\.1).compactMap(\.0.affectedTask))
        table.entries.removeAll { ids.contains($0.record.id) }
        return table.apply(batch)
      }
    },
    Mutant("a transient error comes after an insertion", breaks: "batch.transient") {
      let calls = Counter()
      $0.losesAnswer = { batch in
        guard case .insert = batch.first else { return false }
        return calls.add(1) % 7 == 0
      }
    },
    Mutant("a transient error comes after an end", breaks: "batch.transient") {
      let calls = Counter()
      $0.losesAnswer = { batch in batch.first?.end != nil && calls.add(1) % 7 == 0 }
    },
    Mutant("a transient error comes after a change of a value", breaks: "batch.transient") {
      let calls = Counter()
      $0.losesAnswer = { batch in
        guard case .setValue = batch.first else { return false }
        return calls.add(1) % 7 == 0
      }
    },
    Mutant("an invalid change is stored", breaks: "form.checked") { $0.checksForm = false },
    Mutant("a NUL is stored", breaks: "form.texts") {
      $0.overlooks = { $0.message.contains("NUL") }
    },
    Mutant("dates of any year are stored", breaks: "form.dates") {
      $0.overlooks = { $0.message.contains("9999") }
    },
    Mutant("a time limit of any length is stored", breaks: "form.dates") {
      $0.overlooks = { $0.message.contains("timeLimit") }
    },
  ]

  static let lookUps = [
    Mutant("a task must have all tags of the filter", breaks: "find.filter") {
      $0.matches = { task, filter in
        filter.matches(task) && task.tags.isSuperset(of: filter.tags ?? [])
      }
    },
    Mutant("excluded names are found", breaks: "find.filter") {
      $0.editFilters { $0.excludedNames = [] }
    },
    Mutant("filters ignore order keys", breaks: "find.filter") {
      $0.editFilters { $0.orderKeys = nil }
    },
    Mutant("filters ignore conditions", breaks: "find.filter") {
      $0.editFilters { $0.unmetBy = nil }
    },
    Mutant("filters ignore handlers", breaks: "find.filter") {
      $0.editFilters { $0.unhandledBy = nil }
    },
    Mutant("filters ignore the versions of handlers", breaks: "find.filter") {
      $0.editFilters { filter in
        filter.unhandledBy = filter.unhandledBy?.mapValues { _ in .max }
      }
    },
    Mutant("some task always matches", breaks: "find.filter") {
      $0.contains = { _ in true }
    },
    Mutant("the count is too high by one", breaks: "find.filter") { $0.count = { $0 + 1 } },
    Mutant("filters ignore whether a task is postponed", breaks: "find.put-off") {
      $0.editFilters { $0.isPostponed = nil }
    },
    Mutant("a retry without a failure does not postpone", breaks: "find.put-off") {
      $0.editChangedTask { change, entry, _ in
        if case .move(_, let move) = change, move.kind == .retry, move.failure == nil {
          entry.record.isPostponed = false
        }
      }
    },
    Mutant("a rescheduled task is still postponed", breaks: "find.put-off") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .reschedule {
          entry.record.isPostponed = before?.record.isPostponed ?? false
        }
      }
    },
    Mutant("a range of dates includes its upper bound", breaks: "find.dates") {
      $0.editFilters { filter in
        filter.availableDates = filter.availableDates.map { $0.lowerBound..<($0.upperBound + 1) }
      }
    },
    Mutant("a page repeats the last task of the previous page", breaks: "find.pages") {
      $0.page = { tasks, id, limit in
        Array(tasks.filter { task in id.map { task.id >= $0 } ?? true }.prefix(limit))
      }
    },
    Mutant("IDs are compared as signed numbers", breaks: "find.pages") {
      $0.page = { tasks, id, limit in
        func key(_ id: TaskID) -> (Int64, Int64) {
          (Int64(bitPattern: id.high), Int64(bitPattern: id.low))
        }
        let later = tasks.filter { task in id.map { key(task.id) > key($0) } ?? true }
        return Array(later.sorted { key($0.id) < key($1.id) }.prefix(limit))
      }
    },
  ]

  static let records = [
    Mutant("dates are rounded to milliseconds", breaks: "record.fields") {
      $0.editShownRecords { record in
        let seconds = record.availableDate.timeIntervalSince1970
        record.availableDate = Date(timeIntervalSince1970: (seconds * 1000).rounded() / 1000)
      }
    },
    Mutant("tags are lost", breaks: "record.fields") { $0.rewriteInsertions { $0.copy(tags: []) } },
    Mutant("priorities have 32 bits", breaks: "record.extremes") {
      $0.rewriteInsertions { $0.copy(priority: Int(Int32(clamping: $0.priority.rawValue))) }
    },
    Mutant("every payload is JSON", breaks: "record.payload") {
      $0.rewriteInsertions {
        $0.replacingPayload { StoredPayload($1, format: .json, version: $0.version) }
      }
    },
    Mutant("a payload is stored as text", breaks: "record.payload") {
      $0.rewriteInsertions {
        $0.replacingPayload {
          let text = String(decoding: $1, as: UTF8.self)
          return StoredPayload(Array(text.utf8), format: $0.format, version: $0.version)
        }
      }
    },
    Mutant("the version of a payload is lost", breaks: "record.payload") {
      $0.rewriteInsertions { $0.replacingPayload { StoredPayload($1, format: $0.format) } }
    },
    Mutant("names are normalised", breaks: "record.texts") {
      $0.rewriteInsertions { $0.copy(name: $0.name.precomposedStringWithCanonicalMapping) }
    },
    Mutant("keys are normalised", breaks: "record.texts") {
      $0.rewriteInsertions {
        $0.copy(uniqueKey: .some($0.uniqueKey?.precomposedStringWithCanonicalMapping))
      }
    },
    Mutant("tags are compared by canonical equivalence", breaks: "record.texts") {
      $0.matches = { task, filter in
        var others = filter
        others.tags = nil
        return others.matches(task) && filter.tags.map { !$0.isDisjoint(with: task.tags) } ?? true
      }
    },
    Mutant("claims compare names by canonical equivalence", breaks: "record.texts") {
      $0.editRequests { request in
        for name in request.names.keys where name.unicodeScalars.count > 1 {
          let room = request.names.removeValue(forKey: name)
          request.names[name.precomposedStringWithCanonicalMapping] = room
        }
      }
    },
    Mutant("unparking compares names by canonical equivalence", breaks: "record.texts") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for case .broad(.unpark(let name, _, _)) in batch {
          let names = Set(table.records.map(\.name).filter { $0 == name }.map { Array($0.utf8) })
          for name in names { table.unpark(String(decoding: name, as: UTF8.self)) }
        }
        return outcomes
      }
    },
    Mutant("a payload is truncated at 64 KiB", breaks: "record.large") {
      $0.rewriteInsertions {
        $0.replacingPayload {
          StoredPayload(Array($1.prefix(1 << 16)), format: $0.format, version: $0.version)
        }
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Replaces the outcomes of batches, unless `makeOutcomes` returns `nil`.
  ///
  /// `makeOutcomes` gets a batch and, for each of the changes, whether the change inserts a task
  /// whose ID is taken.
  fileprivate mutating func replaceBatchOutcomes(
    _ makeOutcomes:
      @escaping @Sendable ([TaskChange], [Bool], inout ReferenceTable) -> [ChangeOutcome]?
  ) {
    apply = { batch, table in
      let ids = Set(table.records.map(\.id))
      let isTaken = batch.map { change in
        if case .insert(let record, _) = change { ids.contains(record.id) } else { false }
      }
      return makeOutcomes(batch, isTaken, &table) ?? table.apply(batch)
    }
  }
}
