import Foundation
import SteadfastTesting

/// Stores that lose or mix up metadata.
extension Mutant {
  static let metadata = [
    Mutant("a new task loses its metadata", breaks: "metadata.stored") {
      $0.rewriteInsertions { $0.copy(metadata: [:]) }
    },
    Mutant("a new task gets at most 63 keys", breaks: "metadata.stored") {
      $0.rewriteInsertions { record in
        let kept = record.metadata.sorted { $0.key < $1.key }.prefix(63)
        return record.copy(metadata: Dictionary(uniqueKeysWithValues: kept.map { ($0, $1) }))
      }
    },
    Mutant("values are cut off", breaks: "metadata.stored") {
      $0.rewriteInsertions { $0.copy(metadata: $0.metadata.mapValues { String($0.prefix(1_000)) }) }
    },
    Mutant("keys and values are normalised", breaks: "metadata.stored") {
      $0.rewriteInsertions { record in
        let pairs = record.metadata.map { key, value in
          (
            key.decomposedStringWithCanonicalMapping, value.precomposedStringWithCanonicalMapping
          )
        }
        return record.copy(metadata: Dictionary(uniqueKeysWithValues: pairs))
      }
    },
    Mutant("claims return no metadata", breaks: "metadata.stored") {
      $0.claimed = { tasks in
        tasks.map { ClaimedTask(record: $0.record.copy(metadata: [:]), lease: $0.lease) }
      }
    },
    Mutant("filters ignore metadata", breaks: "metadata.filter") {
      $0.matchMetadata { _, _ in true }
    },
    Mutant("one of a filter's keys and values is enough", breaks: "metadata.filter") {
      $0.matchMetadata { found, wanted in
        wanted.isEmpty || wanted.contains { found[$0.key] == $0.value }
      }
    },
    Mutant("a filter compares only the keys of metadata", breaks: "metadata.filter") {
      $0.matchMetadata { found, wanted in wanted.keys.allSatisfy { found[$0] != nil } }
    },
    Mutant("metadata is compared by canonical equivalence", breaks: "metadata.filter") {
      $0.matchMetadata { found, wanted in wanted.allSatisfy { found[$0.key] == $0.value } }
    },
    Mutant("a filter finds only tasks with no other metadata", breaks: "metadata.filter") {
      $0.matchMetadata { found, wanted in wanted.isEmpty || found == wanted }
    },
    Mutant("an update leaves the metadata", breaks: "metadata.update") {
      $0.rewriteUpdates { $0.metadata = nil }
    },
    Mutant("an update without metadata removes it", breaks: "metadata.update") {
      $0.rewriteUpdates { $0.metadata = $0.metadata ?? [:] }
    },
    Mutant("an update adds to the metadata", breaks: "metadata.update") {
      $0.editChangedTask { change, entry, before in
        guard case .update(_, let update) = change, let metadata = update.metadata,
          let old = before?.record.metadata
        else { return }
        let all = old.merging(metadata) { _, new in new }
        entry.record.apply(TaskUpdate(metadata: all))
      }
    },
    Mutant("a replaced task keeps its metadata", breaks: "metadata.replace") {
      $0.editReplacedRecord { entry, _, before in
        entry.record.apply(TaskUpdate(metadata: before.metadata))
      }
    },
    Mutant("a replaced task keeps its metadata if the new has none", breaks: "metadata.replace") {
      $0.editReplacedRecord { entry, new, before in
        guard new.metadata.isEmpty else { return }
        entry.record.apply(TaskUpdate(metadata: before.metadata))
      }
    },
    Mutant("a reopened store has lost the metadata", breaks: "reopen.metadata") {
      $0.reopen = { table in
        for index in table.entries.indices {
          table.entries[index].record.apply(TaskUpdate(metadata: [:]))
        }
        table.interrupt()
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Compares metadata in another way; `body` gets the metadata of a task and of a filter.
  fileprivate mutating func matchMetadata(
    _ body: @escaping @Sendable ([String: String], [String: String]) -> Bool
  ) {
    matches = { task, filter in
      var others = filter
      others.metadata = nil
      return others.matches(task) && filter.metadata.map { body(task.metadata, $0) } ?? true
    }
  }

  /// Rewrites updates before they are applied.
  fileprivate mutating func rewriteUpdates(_ body: @escaping @Sendable (inout TaskUpdate) -> Void) {
    rewrite = { change in
      guard case .update(let id, var update) = change else { return change }
      body(&update)
      return .update(id, update)
    }
  }
}
