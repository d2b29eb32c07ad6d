import Foundation
import Synchronization

@testable import SteadfastQueue

/// Writes golden files with the real journal, a batch at a time.
struct GoldenWriter {
  let storage: MemoryStorage
  var journal: Journal
  var table: TaskTable

  init() throws {
    storage = MemoryStorage()
    (journal, table) = try Journal.open(storage)
  }

  /// Appends a batch, and flushes it unless `isRelaxed`.
  mutating func append(_ entries: JournalEntry..., isRelaxed: Bool = false) throws {
    try journal.append([entries.map { try JournalBody($0) }])
    if !isRelaxed { try journal.synchronize() }
    for entry in entries { precondition(table.replay(entry), "\(entry) can't be replayed") }
  }

  mutating func change(_ changes: TaskChange...) throws {
    for change in changes {
      if case .insert(let record, _) = change, !record.isPlain {
        try append(.addition(record, .holder))
      } else {
        try append(.change(change))
      }
    }
  }

  mutating func reopen(closing: Bool = false) throws {
    if closing { try journal.close() }
    (journal, table) = try Journal.open(storage)
    // Pending lines are written by a separate write, as earlier versions did.
    try journal.append([])
    try journal.synchronize()
  }

  func date(_ seconds: Double) -> Date { .seconds(1_700_000_000 + seconds) }

  func lease(_ number: Int) -> Lease { Lease(id: .numbered(number), token: 0) }

  func failure(_ number: Int) -> TaskFailure {
    TaskFailure(reason: "failure \(number)", date: date(Double(100 + number)))
  }

  func task(
    _ number: Int,
    name: String = "Note",
    priority: Int = 0,
    available: Double = 0,
    expires: Double? = nil,
    key: String? = nil,
    uniqueUntil: Double? = nil,
    latest: Double? = nil,
    order: String? = nil,
    holds: Bool = false,
    requires conditions: Set<TaskCondition> = [],
    dependencies: TaskDependencies? = nil,
    queue: String = "",
    metadata: [String: String] = [:]
  ) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: name,
      payload: StoredPayload(Array("\(number)".utf8), format: .json),
      priority: TaskQueue.Priority(rawValue: priority),
      createdDate: date(0),
      uniqueKey: key,
      uniqueUntil: uniqueUntil.map(date),
      latestDate: latest.map(date),
      orderKey: order,
      blocksOrderOnFailure: holds,
      conditions: conditions,
      dependencies: dependencies,
      queue: queue,
      metadata: metadata,
      expiryDate: expires.map(date),
      availableDate: date(available)
    )
  }

  mutating func insert(_ records: TaskRecord...) throws {
    for record in records { try change(.insert(record, onDuplicate: .keep)) }
  }

  mutating func begin(_ numbers: Int...) throws {
    for number in numbers { try append(.begin(.numbered(number)), isRelaxed: true) }
  }
}

extension MemoryStorage {
  /// Replaces bytes of the journal with zeros, as if the disk hadn't written them.
  func damage(_ range: Range<Int>) {
    state.withLock { state in
      guard let file = state.names[.journal] else { return }
      for index in range { state.files[file][index] = 0 }
    }
  }
}
