//! A store that several processes share, a process that only adds tasks, and what a store says of
//! itself.

import Foundation
import SteadfastQueue

struct SendReceipt: TaskPayload { var order: Int }

func send(_ receipt: SendReceipt) async throws {}

/// Performs tasks that other processes have added, too.
func work() async throws {
  // snippet.store
  struct DatabaseStore: Persistence {
    var sharing: StoreSharing? {
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5))
    }

    // The other requirements: see "Writing a store".
    // snippet.hide
    let connection = Connection()

    func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
      try await connection.apply(batch, durability)
    }

    func claim(_ request: ClaimRequest) async throws -> Claim {
      try await connection.memory.claim(request)
    }

    func tasks(matching filter: TaskFilter, after id: TaskID?, limit: Int, newestFirst: Bool)
      async throws
      -> [TaskRecord]
    {
      try await connection.memory.tasks(
        matching: filter,
        after: id,
        limit: limit,
        newestFirst: newestFirst
      )
    }

    func count(matching filter: TaskFilter) async throws -> Int {
      try await connection.memory.count(matching: filter)
    }

    func value(named name: String) async throws -> [UInt8]? {
      try await connection.memory.value(named: name)
    }

    func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
      try await connection.memory.values(prefix: prefix)
    }

    func memory(of id: TaskID) async throws -> TaskMemory {
      try await connection.memory.memory(of: id)
    }

    func close() async throws {}

    func destroy() async throws {}
    // snippet.show
  }

  // In each process:
  let queue = TaskQueue(persistence: DatabaseStore())
  await queue.register(SendReceipt.self) { receipt, _ in
    try await send(receipt)
  }
  try await queue.run()
  // snippet.end
}

/// Stands for the connection to a database.
struct Connection {
  let memory = InMemoryStore()

  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    try await memory.apply(batch, durability: durability)
  }
}

/// What a store must have, or may have in place of a default.
protocol Requirements: Persistence {
  // snippet.requirements
  var appliesAtOnce: Bool { get }
  var claimBatch: Int { get }
  var sharing: StoreSharing? { get }
  var hasOneClock: Bool { get }
  var hints: AsyncStream<Void>? { get }
  func open() async throws
  func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome]
  func claim(_ request: ClaimRequest) async throws -> Claim
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord]
  func count(matching filter: TaskFilter) async throws -> Int
  func contains(_ filter: TaskFilter) async throws -> Bool
  func census(at now: Date) async throws -> TaskCensus
  func value(named name: String) async throws -> [UInt8]?
  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])]
  func memory(of id: TaskID) async throws -> TaskMemory
  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement?
  func close() async throws
  func destroy() async throws
  // snippet.end
}

extension InMemoryStore: Requirements {}

struct RealStore {
  let connection = Connection()

  // snippet.turn
  func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await RealWork.performInTurn {
      try await connection.apply(batch, durability)
    }
  }
  // snippet.end
}

let queue = TaskQueue(
  configuration: TaskQueueConfiguration(succeededRetention: .forever)
)

// snippet.request
/// In the request that adds the task.
func add(_ receipt: SendReceipt) async throws -> String {
  let task = try await queue.enqueue(receipt)
  return task.id.description
}

/// In a later request, which has the text that `add` returned.
func state(of text: String) async throws -> String {
  guard let id = TaskID(text),
    let record = try await queue.task(id)?.record()
  else { return "unknown, or gone" }
  return record.state.rawValue  // "waiting", "running", "succeeded", …
}
// snippet.end

await queue.register(SendReceipt.self) { receipt, _ in try await send(receipt) }
let text = try await add(SendReceipt(order: 7))
print(try await state(of: text))
try await queue.runAvailable()
print(try await state(of: text))
