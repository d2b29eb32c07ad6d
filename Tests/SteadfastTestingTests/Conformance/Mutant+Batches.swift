import Foundation
import SteadfastTesting

/// Stores that keep other tasks than they say, or find others than they keep.
extension Mutant {
  static let batches = [
    Mutant("an empty batch is done", breaks: "batch.outcomes") {
      $0.apply = { batch, table in batch.isEmpty ? [.done] : table.apply(batch) }
    },
    Mutant("only 500 changes of a batch are kept", breaks: "batch.large") {
      $0.apply = { batch, table in
        table.apply(Array(batch.prefix(500))) + batch.dropFirst(500).map { _ in .done }
      }
    },
    Mutant("a stale change refuses its batch", breaks: "batch.stale") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard outcomes.contains(.stale) else { return outcomes }
        table = before
        return outcomes.map { $0 == .done ? .batchRefused : $0 }
      }
    },
    Mutant("a batch is kept one by one", breaks: "batch.rejected") {
      $0.apply = { batch, table in batch.map { table.apply([$0])[0] } }
    },
    Mutant("what went before a taken identity is kept", breaks: "batch.identity-taken") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard let index = outcomes.firstIndex(of: .identityTaken) else { return outcomes }
        table = before
        _ = table.apply(Array(batch.prefix(index)))
        return outcomes
      }
    },
    Mutant("what is sent again is refused", breaks: "batch.sent-again") {
      $0.answersTaken { batch, isTaken, table in
        isTaken.contains(true) ? isTaken.map { $0 ? .identityTaken : .batchRefused } : nil
      }
    },
    Mutant("any task with the identity is taken for sent again", breaks: "batch.sent-again") {
      $0.answersTaken { batch, isTaken, table in
        var outcomes = table.apply(zip(batch, isTaken).filter { !$1 }.map(\.0)).makeIterator()
        return isTaken.map { $0 ? .done : outcomes.next() ?? .stale }
      }
    },
    Mutant("an insertion that is sent again replaces the task", breaks: "batch.sent-again") {
      $0.answersTaken { batch, isTaken, table in
        let ids = Set(zip(batch, isTaken).filter(\.1).compactMap(\.0.taskID))
        table.entries.removeAll { ids.contains($0.record.id) }
        return table.apply(batch)
      }
    },
    Mutant("nonsense is kept", breaks: "form.checked") { $0.checksForm = false },
    Mutant("a NUL is kept", breaks: "form.texts") {
      $0.overlooks = { $0.message.contains("NUL") }
    },
    Mutant("dates of any year are kept", breaks: "form.dates") {
      $0.overlooks = { $0.message.contains("9999") }
    },
    Mutant("a time limit of any length is kept", breaks: "form.dates") {
      $0.overlooks = { $0.message.contains("timeLimit") }
    },
  ]

  static let lookUps = [
    Mutant("a task must have all tags that are looked for", breaks: "find.filter") {
      $0.matches = { task, filter in
        filter.matches(task) && task.tags.isSuperset(of: filter.tags ?? [])
      }
    },
    Mutant("names to leave out are found", breaks: "find.filter") {
      $0.matches = { task, filter in
        var filter = filter
        filter.excludedNames = []
        return filter.matches(task)
      }
    },
    Mutant("order keys are not asked", breaks: "find.filter") {
      $0.matches = { task, filter in
        var filter = filter
        filter.orderKeys = nil
        return filter.matches(task)
      }
    },
    Mutant("conditions are not asked", breaks: "find.filter") {
      $0.matches = { task, filter in
        var filter = filter
        filter.unmetBy = nil
        return filter.matches(task)
      }
    },
    Mutant("there is always a task that matches", breaks: "find.filter") {
      $0.contains = { _ in true }
    },
    Mutant("the count is too high by one", breaks: "find.filter") { $0.count = { $0 + 1 } },
    Mutant("whether a task is put off is not asked", breaks: "find.put-off") {
      $0.matches = { task, filter in
        var filter = filter
        filter.isPostponed = nil
        return filter.matches(task)
      }
    },
    Mutant("what has no failure is not put off", breaks: "find.put-off") {
      $0.afterwards { change, entry, _ in
        if case .retry(_, _, _, nil, _) = change { entry.record.isPostponed = false }
      }
    },
    Mutant("a task with another date is put off still", breaks: "find.put-off") {
      $0.afterwards { change, entry, before in
        if case .reschedule = change {
          entry.record.isPostponed = before?.record.isPostponed ?? false
        }
      }
    },
    Mutant("the end of a range of dates is in it", breaks: "find.dates") {
      $0.matches = { task, filter in
        var filter = filter
        filter.availableDates = filter.availableDates.map { $0.lowerBound..<($0.upperBound + 1) }
        return filter.matches(task)
      }
    },
    Mutant("a page begins with the last of the page before", breaks: "find.pages") {
      $0.page = { tasks, id, limit in
        Array(tasks.filter { task in id.map { task.id >= $0 } ?? true }.prefix(limit))
      }
    },
    Mutant("identities are signed numbers", breaks: "find.pages") {
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
    Mutant("dates are whole milliseconds", breaks: "record.fields") {
      $0.shown = { record in
        var record = record
        let seconds = record.availableDate.timeIntervalSince1970
        record.availableDate = Date(timeIntervalSince1970: (seconds * 1000).rounded() / 1000)
        return record
      }
    },
    Mutant("tags are lost", breaks: "record.fields") { $0.insertions { $0.copy(tags: []) } },
    Mutant("priorities have 32 bits", breaks: "record.extremes") {
      $0.insertions { $0.copy(priority: Int(Int32(clamping: $0.priority.rawValue))) }
    },
    Mutant("every payload is JSON", breaks: "record.payload") {
      $0.insertions {
        $0.copy { StoredPayload($1, format: .json, version: $0.version) }
      }
    },
    Mutant("a payload is text", breaks: "record.payload") {
      $0.insertions {
        $0.copy {
          let text = String(decoding: $1, as: UTF8.self)
          return StoredPayload(Array(text.utf8), format: $0.format, version: $0.version)
        }
      }
    },
    Mutant("the version of a payload is lost", breaks: "record.payload") {
      $0.insertions { $0.copy { StoredPayload($1, format: $0.format) } }
    },
    Mutant("names are normalised", breaks: "record.texts") {
      $0.insertions { $0.copy(name: $0.name.precomposedStringWithCanonicalMapping) }
    },
    Mutant("keys are normalised", breaks: "record.texts") {
      $0.insertions {
        $0.copy(uniqueKey: .some($0.uniqueKey?.precomposedStringWithCanonicalMapping))
      }
    },
    Mutant("tags are compared as Swift compares texts", breaks: "record.texts") {
      $0.matches = { task, filter in
        var others = filter
        others.tags = nil
        return others.matches(task) && filter.tags.map { !$0.isDisjoint(with: task.tags) } ?? true
      }
    },
    Mutant("names are handed out as Swift compares texts", breaks: "record.texts") {
      $0.request = { request in
        var request = request
        for name in request.names.keys where name.unicodeScalars.count > 1 {
          let room = request.names.removeValue(forKey: name)
          request.names[name.precomposedStringWithCanonicalMapping] = room
        }
        return request
      }
    },
    Mutant("what is parked under a similar name is unparked", breaks: "record.texts") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for case .unpark(let name, _) in batch {
          let names = Set(table.records.map(\.name).filter { $0 == name }.map { Array($0.utf8) })
          for name in names { table.unpark(String(decoding: name, as: UTF8.self)) }
        }
        return outcomes
      }
    },
    Mutant("a payload is cut at 64 KB", breaks: "record.large") {
      $0.insertions {
        $0.copy {
          StoredPayload(Array($1.prefix(1 << 16)), format: $0.format, version: $0.version)
        }
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Answers batches in another way, told which of their changes insert a task whose ID is taken.
  fileprivate mutating func answersTaken(
    _ answer:
      @escaping @Sendable ([TaskChange], [Bool], inout ReferenceTable) -> [ChangeOutcome]?
  ) {
    apply = { batch, table in
      let ids = Set(table.records.map(\.id))
      let isTaken = batch.map { change in
        if case .insert(let record, _) = change { ids.contains(record.id) } else { false }
      }
      return answer(batch, isTaken, &table) ?? table.apply(batch)
    }
  }
}
