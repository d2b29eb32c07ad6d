import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests new tasks whose dependency is being changed in the file.
@Suite struct UncertainDependencyTests: FlushSuite {
  let setting = FlushSetting()

  private func cancel(_ number: Int, retains: Bool) -> TaskChange {
    .cancel(.unclaimed(.numbered(number)), at: .seconds(1), retains: retains)
  }

  private func prune(keeping count: Int) -> TaskChange {
    .prune(.cancelled, endedBefore: nil, keepingLatest: count, now: .seconds(2))
  }

  /// Stores changes one after the other.
  private func store(_ changes: [TaskChange]) async throws {
    let core = core
    try await executor.runToEnd {
      try await core.open()
      for change in changes { _ = try await core.apply([change], .durable) }
    }
  }

  /// Stores a change, and inserts a task that depends on task 1 while the change is being flushed.
  ///
  /// - Returns: The outcome of the insertion.
  private func outcome(
    of rule: DependencyRule = .allEnded,
    addedDuring change: TaskChange
  ) async throws -> [ChangeOutcome] {
    let (core, outcomes) = (core, Log<ChangeOutcome>())
    let record = TaskRecord.make(
      9,
      dependencies: TaskDependencies(on: [.numbered(1)], rule: rule)
    )
    duringFlushes {
      for outcome in try await core.insert(record) { outcomes.add(outcome) }
    }
    try await executor.runToEnd { _ = try await core.apply([change], .durable) }
    #expect(try JournalReader.read(storage.bytes).table.digest() == core.read { $0.digest() })
    return outcomes.entries
  }

  private let done = [ChangeOutcome.done]
  private let unmet = [ChangeOutcome.unmetDependency(.numbered(1))]

  @Test(arguments: [true, false])
  func `a task can depend on a task whose end is being stored if the ended task is retained`(
    retains: Bool
  ) async throws {
    try await store([.insert(.make(1), onDuplicate: .keep)])
    let outcome = try await outcome(addedDuring: cancel(1, retains: retains))
    #expect(outcome == (retains ? done : unmet))
  }

  @Test(arguments: [1, 0])
  func `a task is rejected during a pruning only if the pruning removes its dependency`(
    count: Int
  ) async throws {
    try await store([.insert(.make(1), onDuplicate: .keep), cancel(1, retains: true)])
    let outcome = try await outcome(addedDuring: prune(keeping: count))
    #expect(outcome == (count == 1 ? done : unmet))
  }

  @Test func `a task can depend on a task whose restart is being stored`() async throws {
    try await store([.insert(.make(1), onDuplicate: .keep), cancel(1, retains: true)])
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .seconds(2))
    let outcome = try await outcome(addedDuring: restart)
    #expect(outcome == done)
  }

  @Test func `a task can depend on a task that a cascade is cancelling`() async throws {
    let dependencies = TaskDependencies(on: [.numbered(2)])
    try await store([
      .insert(.make(2), onDuplicate: .keep),
      .insert(.make(1, dependencies: dependencies), onDuplicate: .keep),
    ])
    let outcome = try await outcome(addedDuring: cancel(2, retains: true))
    #expect(outcome == done)
    #expect(core.read { $0.record(of: .numbered(1))?.state } == .cancelled)
  }

  @Test func `a task that needs a success is rejected if its dependency was cancelled`()
    async throws
  {
    try await store([.insert(.make(1), onDuplicate: .keep)])
    let outcome = try await outcome(
      of: .allSucceeded,
      addedDuring: cancel(1, retains: true)
    )
    #expect(outcome == unmet)
  }

  @Test func `a batch that removes a task and adds a dependent of that task is rejected`()
    async throws
  {
    try await store([.insert(.make(1), onDuplicate: .keep)])
    let dependencies = TaskDependencies(on: [.numbered(1)], rule: .allEnded)
    let added = TaskRecord.make(9, dependencies: dependencies)
    let batch = [cancel(1, retains: false), .insert(added, onDuplicate: .keep)]
    let core = core
    let outcomes = try await executor.run { try await core.apply(batch, .durable) }
    #expect(outcomes == [.batchRefused] + unmet)
    #expect(core.read { $0.record(of: .numbered(1))?.state } == .waiting)
  }
}
