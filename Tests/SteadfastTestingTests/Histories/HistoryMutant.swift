import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

/// A planted fault, and the promise that a history with this fault breaks.
struct HistoryMutant: Sendable, CustomTestStringConvertible {
  let name: String
  let promise: History.Promise
  let fault: HistorySimulation.Fault
  /// The first seed to try; for a fault that few seeds reveal, one of these seeds.
  var firstSeed: UInt64 = 0

  var testDescription: String { "\(promise.rawValue): \(name)" }

  private static func brokenStore(
    _ name: String,
    breaks promise: History.Promise,
    _ behaviour: @escaping @Sendable (inout PlainStore.Behaviour) -> Void
  ) -> HistoryMutant {
    HistoryMutant(name: name, promise: promise, fault: .init(behaviour: behaviour))
  }

  private static func brokenConnection(
    _ name: String,
    breaks promise: History.Promise,
    from seed: UInt64 = 0,
    _ wrap: @escaping @Sendable (any Persistence, VirtualClock) -> any Persistence
  ) -> HistoryMutant {
    HistoryMutant(name: name, promise: promise, fault: .init(wrap: wrap), firstSeed: seed)
  }

  static let all: [HistoryMutant] = [
    brokenConnection("a transient error is ignored", breaks: .nothingIsLost) { base, _ in
      SwallowingStore(base)
    },
    brokenConnection(
      "a change is acknowledged before it is flushed",
      breaks: .nothingIsLost,
      from: 6
    ) { base, _ in
      LateStore(base)
    },
    HistoryMutant(
      name: "an insertion that is repeated after the end adds the task again",
      promise: .nothingIsAdded,
      fault: .init(wrap: { LateAnswers($0, $1) }, retention: .none)
    ),
    brokenStore("a change is applied without checking its lease", breaks: .oneEnd) {
      $0.apply = { batch, table in
        let leases = Dictionary(
          uniqueKeysWithValues: table.entries.map { ($0.record.id, $0.lease) }
        )
        return table.apply(batch.map { $0.replacingLease { leases[$0.id].flatMap(\.self) ?? $0 } })
      }
    },
    brokenStore("an end is acknowledged but not stored", breaks: .oneEnd) {
      let calls = Counter()
      $0.apply = { batch, table in
        guard calls.add(1) % 7 == 0, batch.count == 1, batch[0].end?.state == .succeeded else {
          return table.apply(batch)
        }
        var copy = table
        return copy.apply(batch)
      }
    },
    brokenStore("leases expire by the client's clock", breaks: .oneHolder) {
      $0.usesClockOfRequests = true
    },
    brokenStore("an extension is acknowledged but not applied", breaks: .oneHolder) {
      $0.apply = { batch, table in
        let ends = Dictionary(
          uniqueKeysWithValues: table.entries.map { ($0.record.id, $0.leaseEnd) }
        )
        defer {
          for index in table.entries.indices where table.entries[index].lease != nil {
            if let end = ends[table.entries[index].record.id] {
              table.entries[index].leaseEnd = end
            }
          }
        }
        return table.apply(batch)
      }
    },
    brokenStore("a claim returns the previous claim's tasks", breaks: .oneHolder) {
      let last = Mutex<ClaimedTask?>(nil)
      let claims = Counter()
      $0.claimed = { tasks in
        guard let first = tasks.first else { return tasks }
        return last.withLock { last in
          defer { last = first }
          // If every claim did this, a simulated hour would take half a minute.
          guard let last, claims.add(1) % 8 == 0 else { return tasks }
          return tasks + [last]
        }
      }
    },
    brokenStore("a retry is counted after the commit", breaks: .exactCounts) {
      let late = Mutex<[TaskID: Int]>([:])
      $0.apply = { batch, table in
        let counts = late.withLock { late in
          defer { late = [:] }
          return late
        }
        for index in table.entries.indices {
          guard let count = counts[table.entries[index].record.id] else { continue }
          table.entries[index].record.retryCount = count
        }
        return table.apply(
          batch.map { change in
            guard case .move(.claimed(let lease), let move) = change, move.kind == .retry,
              let date = move.availableDate, let count = move.retryCount,
              case let failure = move.failure
            else {
              return change
            }
            late.withLock { $0[lease.id] = count }
            return .retry(
              lease,
              availableDate: date,
              retryCount: max(0, count - 1),
              failure: failure
            )
          }
        )
      }
    },
    brokenStore("an interruption is not counted", breaks: .exactCounts) {
      $0.shown = { record in
        var record = record
        record.interruptionCount = 0
        return record
      }
    },
    brokenStore("a later task overtakes one with its order key", breaks: .orderOfKeys) {
      $0.editChangedTask { change, entry, _ in
        if case .insert = change { entry.number = -entry.number }
      }
    },
    brokenStore("two processes run tasks of one order key", breaks: .oneRunnerForKey) {
      $0.rewriteInsertions { $0.copy(orderKey: .some(nil)) }
    },
    brokenStore("a follower is performed twice", breaks: .waitingTasksAreLast) {
      let repeated = Mutex<Set<TaskID>>([])
      $0.afterEachChange { change, before, table in
        guard case .end(.claimed(let lease), let end) = change, end.state == .succeeded,
          let record = before.record(of: lease.id), record.dependencies.batch != nil,
          repeated.withLock({ $0.insert(lease.id).inserted }),
          let index = table.entries.firstIndex(where: { $0.record.id == lease.id })
        else { return }
        table.entries[index].record.state = .waiting
        table.entries[index].record.finishedDate = nil
      }
    },
    brokenStore("a follower runs before its batch", breaks: .waitingTasksAreLast) {
      $0.rewriteInsertions { record in
        var record = record
        record.dependencies.follower = nil
        return record
      }
    },
    brokenStore("a value is set without comparing", breaks: .limitsHold) {
      $0.apply = { batch, table in
        let values = table.values
        return table.apply(
          batch.map { change in
            guard case .setValue(let name, _, let new) = change else { return change }
            let old = values.first { $0.key.text == name }?.value
            return .setValue(named: name, from: old, to: new)
          }
        )
      }
    },
    brokenStore("a retried task is never claimed", breaks: .everythingEnds) {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .retry { entry.record.availableDate = .distantFuture }
      }
    },
  ]
}
