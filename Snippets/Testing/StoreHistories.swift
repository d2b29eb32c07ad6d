//! What a store was asked and has answered, written to a file and checked: promises that hold, and
//! a store that loses a task.

import Foundation
import SteadfastTesting

let folder = FileManager.default.temporaryDirectory
  .appending(path: "histories-\(UUID().uuidString)")
try FileManager.default.createDirectory(
  at: folder,
  withIntermediateDirectories: true
)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.record
struct Parcel: TaskPayload { var number: Int }

/// Adds and performs tasks, and writes the history to a file.
func work(on store: any Persistence, history: URL) async throws {
  let recorder = try HistoryRecorder(store, to: history)
  let queue = TaskQueue(persistence: recorder)
  await queue.register(Parcel.self) { parcel, context in
    try await recorder.recordAttempt(of: context.id) {
      // Do the work here, and let it take some time.
    }
  }
  try await queue.enqueue(contentsOf: (1...20).map { Parcel(number: $0) })
  try recorder.recordEndOfFaults()
  try await queue.runAvailable()
  try await recorder.recordRemainingTasks()
}
// snippet.end

// snippet.check
let file = folder.appending(path: "sound.jsonl")
try await work(on: InMemoryStore(), history: file)

let expectations = History.Expectations(endsWithin: .seconds(60))
let report = try History(contentsOf: [file]).check(expectations)
print(report)
// snippet.end
guard report.passes else { fatalError("a sound store breaks a promise") }

/// A store that forgets the last task of each batch.
struct ForgetfulStore: Persistence {
  let base = InMemoryStore()

  func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    guard batch.count > 1 else {
      return try await base.apply(batch, durability: durability)
    }
    let kept = Array(batch.dropLast())
    return try await base.apply(kept, durability: durability) + [.done]
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await base.claim(request)
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: name)
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix)
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    try await base.memory(of: id)
  }

  func destroy() async throws { try await base.destroy() }
}

let other = folder.appending(path: "forgetful.jsonl")
try await work(on: ForgetfulStore(), history: other)
let loss = try History(contentsOf: [other]).check(expectations)
guard loss.broken.contains(.nothingIsLost) else {
  fatalError("the lost task was not found: \(loss)")
}
print("a store that forgets a task breaks", loss.violations[0].promise.rawValue)
