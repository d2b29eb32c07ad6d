import Foundation
import GRDB
import SteadfastQueue
import SteadfastSQLite
import Testing

private struct SendReceipt: TaskPayload { var order: Int64? }

private struct Order: Codable, FetchableRecord, MutablePersistableRecord {
  static let databaseTableName = "orders"
  var id: Int64?
  var total: Int

  mutating func didInsert(_ inserted: InsertionSuccess) { id = inserted.rowID }
}

// snippet.parameters
extension SQLParameter {
  var value: (any DatabaseValueConvertible)? {
    switch self {
    case .null: nil
    case .integer(let value): value
    case .real(let value): value
    case .text(let value): value
    case .bytes(let value): Data(value)
    }
  }
}

extension InsertStatement {
  var arguments: StatementArguments {
    StatementArguments(parameters.map(\.value))
  }
}
// snippet.end

private struct Refusal: Error {}

/// Tasks that GRDB enqueues within its own transaction.
struct GRDBTests {
  @Test(.timeLimit(.minutes(5)))
  func `a task commits or rolls back with a record`() async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "GRDBTests-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let url = folder.appending(path: "shop.sqlite")
    let path = url.path
    let queue = TaskQueue(persistence: .sqlite(at: url))
    let (receipts, send) = AsyncStream<Int64>.makeStream()
    await queue.register(SendReceipt.self) { receipt, _ in
      if let number = receipt.order { send.yield(number) }
    }
    try await queue.open()
    // snippet.transaction
    var configuration = Configuration()
    configuration.busyMode = .timeout(5)  // By default, GRDB does not wait.
    let pool = try DatabasePool(path: path, configuration: configuration)
    // snippet.hide
    try await pool.write { db in
      try db.create(table: "orders") { table in
        table.autoIncrementedPrimaryKey("id")
        table.column("total", .integer)
      }
    }
    // snippet.show

    try await pool.write { db in
      var order = Order(total: 20)
      try order.insert(db)
      let receipt = SendReceipt(order: order.id)
      let statement = try queue.insertStatement(for: receipt)
      try db.execute(sql: statement.text, arguments: statement.arguments)
    }
    // snippet.end
    // Runs beside the test, which cancels it.
    let running = Task { try await queue.run() }
    for total in 1...10 {
      do {
        try await pool.write { db in
          var order = Order(total: total)
          try order.insert(db)
          let number = try #require(order.id)
          let statement = try queue.insertStatement(
            for: SendReceipt(order: number),
            uniqueKey: "\(number)",
            options: TaskOptions(onDuplicate: .reject, tags: ["receipt"])
          )
          try db.execute(sql: statement.text, arguments: statement.arguments)
          if total.isMultiple(of: 2) { throw Refusal() }
        }
      } catch is Refusal {}
    }
    var performed: Set<Int64> = []
    for await number in receipts {
      performed.insert(number)
      if performed.count == 6 { break }
    }
    let orders = try await pool.read { try Order.fetchAll($0) }
    #expect(performed == Set(orders.compactMap(\.id)))
    #expect(orders.map(\.total) == [20, 1, 3, 5, 7, 9])
    running.cancel()
    _ = await running.result
    #expect(try await queue.count(matching: .unfinished) == 0)
  }
}
