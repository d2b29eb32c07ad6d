import Foundation
import SteadfastTesting

/// Stores that lose values, or that set values although they must not.
extension Mutant {
  static let values = [
    Mutant("a value is truncated at 1,000 bytes", breaks: "values.kept") {
      $0.replaceValueBytes { $0.map { Array($0.prefix(1_000)) } }
    },
    Mutant("a value is stored as text", breaks: "values.kept") {
      $0.replaceValueBytes { $0.map { Array(String(decoding: $0, as: UTF8.self).utf8) } }
    },
    Mutant("an empty value is no value", breaks: "values.kept") {
      $0.replaceValueBytes { $0.flatMap { $0.isEmpty ? nil : $0 } }
    },
    Mutant("a value is never removed", breaks: "values.kept") {
      $0.rewrite = { change in
        guard case .setValue(let name, let old, nil) = change else { return change }
        return .setValue(named: name, from: old, to: old)
      }
    },
    Mutant("names of values are truncated", breaks: "values.kept") {
      $0.replaceValueNames { String($0.prefix(255)) }
    },
    Mutant("names of values are normalised", breaks: "values.names") {
      $0.replaceValueNames { $0.precomposedStringWithCanonicalMapping }
    },
    Mutant("names of values are case-insensitive", breaks: "values.names") {
      $0.replaceValueNames { $0.lowercased() }
    },
    Mutant("prefixes of names are compared by characters", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: "").filter { $0.name.hasPrefix(prefix) || prefix.isEmpty }
      }
    },
    Mutant("prefixes of names are case-insensitive", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: "").filter {
          $0.name.lowercased().utf8.starts(with: prefix.lowercased().utf8)
        }
      }
    },
    Mutant("an underscore in a prefix stands for any character", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: "").filter { value in
          value.name.utf8.count >= prefix.utf8.count
            && zip(value.name.utf8, prefix.utf8).allSatisfy { $0 == $1 || $1 == UInt8(ascii: "_") }
        }
      }
    },
    Mutant("a name does not begin with itself", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: prefix).filter { !$0.name.isExactly(prefix) }
      }
    },
    Mutant("names in a list are in the order of their UTF-16", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: prefix).sorted {
          $0.name.utf16.lexicographicallyPrecedes($1.name.utf16)
        }
      }
    },
    Mutant("values in a list are truncated", breaks: "values.prefix") {
      $0.values = { prefix, table in
        table.values(prefix: prefix).map { ($0.name, Array($0.bytes.prefix(1))) }
      }
    },
    Mutant("a value is set without comparing", breaks: "values.compared") {
      $0.replaceExpectedValues { _, present in present }
    },
    Mutant("a missing value is set without comparing", breaks: "values.compared") {
      $0.replaceExpectedValues { old, present in present.flatMap { _ in old } }
    },
    Mutant("an expected absence matches any value", breaks: "values.compared") {
      $0.replaceExpectedValues { old, present in old ?? present }
    },
    Mutant("values are compared by their lengths", breaks: "values.compared") {
      $0.replaceExpectedValues { old, present in old?.count == present?.count ? present : old }
    },
    Mutant("a differing value rejects only its own change", breaks: "values.guard") {
      $0.apply = { batch, table in
        let isMet = batch.map { table.hasValueExpected(by: $0) }
        let rest = zip(batch, isMet).filter(\.1).map(\.0)
        var outcomes = table.apply(rest)[...]
        return isMet.map { $0 ? outcomes.removeFirst() : .valueDiffers }
      }
    },
    Mutant("changes before a differing value are stored", breaks: "values.guard") {
      $0.apply = { batch, table in
        guard let first = batch.firstIndex(where: { !table.hasValueExpected(by: $0) }) else {
          return table.apply(batch)
        }
        _ = table.apply(Array(batch.prefix(first)))
        return batch.map { _ in .valueDiffers }
      }
    },
    Mutant("a differing value makes its batch stale", breaks: "values.guard") {
      $0.apply = { batch, table in
        table.apply(batch).enumerated().map { index, outcome in
          guard outcome == .valueDiffers, case .setValue = batch[index] else {
            return outcome == .valueDiffers ? .stale : outcome
          }
          return outcome
        }
      }
    },
    Mutant("a rejected insertion takes precedence over a differing value", breaks: "values.guard") {
      $0.apply = { batch, table in
        let others = batch.filter { if case .setValue = $0 { false } else { true } }
        var trial = table
        guard trial.apply(others).contains(.batchRefused) else { return table.apply(batch) }
        return batch.map { _ in .batchRefused }
      }
    },
    Mutant("a rejected batch sets its values", breaks: "values.refused") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        guard outcomes.contains(.batchRefused) else { return outcomes }
        for case .setValue(let name, _, let bytes) in batch {
          table.values[ExactText(name)] = bytes
        }
        return outcomes
      }
    },
    Mutant("a pruning removes values", breaks: "values.apart") {
      $0.afterEachChange { change, _, table in
        if case .broad(.prune) = change { table.values = [:] }
      }
    },
    Mutant("a rebase removes values", breaks: "values.apart") {
      $0.afterEachChange { change, _, table in
        if case .broad(.rebase) = change { table.values = [:] }
      }
    },
    Mutant("setting a value inserts a task", breaks: "values.apart") {
      $0.afterEachChange { change, _, table in
        guard case .setValue(let name, _, let bytes?) = change else { return }
        let record = TaskRecord(
          id: TaskID(high: 1, low: UInt64(table.entries.count)),
          name: name,
          payload: StoredPayload(bytes, format: .binary),
          createdDate: .distantPast,
          availableDate: .distantFuture
        )
        _ = table.apply([.insert(record, onDuplicate: .keep)])
      }
    },
    Mutant("an empty name is accepted", breaks: "form.values") {
      $0.overlooks = { $0.message.contains("has 0 bytes of UTF-8") }
    },
    Mutant("a name that is too long is accepted", breaks: "form.values") {
      $0.overlooks = { $0.message.contains("bytes of UTF-8; give it 1 to") }
    },
    Mutant("a value that is too long is accepted", breaks: "form.values") {
      $0.overlooks = { $0.message.contains("give at most 65536") }
    },
    Mutant("a NUL in the name of a value is accepted", breaks: "form.values") {
      $0.overlooks = { $0.message.contains("the name of a value contains a NUL") }
    },
    Mutant("a destroyed store leaves its values", breaks: "life.values") {
      $0.erasesValues = false
    },
    Mutant("values are lost when opened again", breaks: "reopen.values") {
      $0.reopen = { table in
        table.interrupt()
        table.values = [:]
      }
    },
    Mutant("values are lost when another store opens", breaks: "sharing.values", isShared: true) {
      $0.reopen = { $0.values = [:] }
      $0.opensAnew = true
    },
    Mutant("two changes both compare before either sets a value", breaks: "concurrency.values") {
      $0.racesInApply = true
    },
  ]
}

extension PlainStore.Behaviour {
  /// Replaces the bytes of values before they are compared or set.
  fileprivate mutating func replaceValueBytes(_ body: @escaping @Sendable ([UInt8]?) -> [UInt8]?) {
    rewrite = { change in
      guard case .setValue(let name, let old, let new) = change else { return change }
      return .setValue(named: name, from: body(old), to: body(new))
    }
  }

  /// Replaces the names of values.
  fileprivate mutating func replaceValueNames(_ body: @escaping @Sendable (String) -> String) {
    rewrite = { change in
      guard case .setValue(let name, let old, let new) = change else { return change }
      return .setValue(named: body(name), from: old, to: new)
    }
    value = { $1.values[ExactText(body($0))] }
  }

  /// Replaces the value that a change expects before it sets another value.
  fileprivate mutating func replaceExpectedValues(
    _ body: @escaping @Sendable (_ expected: [UInt8]?, _ current: [UInt8]?) -> [UInt8]?
  ) {
    apply = { batch, table in
      let values = table.values
      return table.apply(
        batch.map { change in
          guard case .setValue(let name, let old, let new) = change else { return change }
          return .setValue(named: name, from: body(old, values[ExactText(name)]), to: new)
        }
      )
    }
  }
}

extension ReferenceTable {
  /// Returns whether the stored value is the one that the change expects.
  fileprivate func hasValueExpected(by change: TaskChange) -> Bool {
    guard case .setValue(let name, let old, _) = change else { return true }
    return values[ExactText(name)] == old
  }
}
