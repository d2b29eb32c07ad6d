import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SteadfastSQLite

/// A process that writes statements that add tasks, or performs these tasks.
///
///     StatementWorker insert STORE PLACE COUNT  writes a statement, and parameters for some orders
///     StatementWorker ship STORE PLACE          writes the numbers of orders, and performs them
///
/// STORE is sqlite, and PLACE the path of its file, or postgresql, and PLACE its connection string.
/// An error is one line on standard error, with the exit code 2.
struct Order: TaskPayload {
  let number: Int
  /// Some texts are so long that the payload is in a separate row.
  let text: String

  init(_ number: Int) {
    self.number = number
    text = String(repeating: "long ", count: number % 10 == 0 ? 600 : 0)
  }
}

/// A parameter as JSON: a number, a text, null, or an object with the digits of bytes.
struct Parameter: Encodable {
  let value: SQLParameter

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch value {
    case .null: try container.encodeNil()
    case .integer(let value): try container.encode(value)
    case .real(let value): try container.encode(value)
    case .text(let value): try container.encode(value)
    case .bytes(let value):
      try container.encode(["hex": value.map { String(format: "%02x", $0) }.joined()])
    }
  }
}

struct Mistake: Error, CustomStringConvertible {
  let description: String
}

func write(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

func store(_ kind: String, _ place: String) throws -> any Persistence {
  let sharing = StoreSharing(leaseDuration: .seconds(2), pollInterval: .seconds(1))
  switch kind {
  #if SQLite
  case "sqlite": return SQLiteStore(at: URL(filePath: place), sharing: sharing)
  #endif
  #if PostgreSQL
  case "postgresql": return PostgreSQLStore(place, sharing: sharing)
  #endif
  default:
    throw Mistake(description: "'\(kind)' with \(sharing) is not a store of this build")
  }
}

do {
  let arguments = CommandLine.arguments
  guard arguments.count > 3 else {
    throw Mistake(description: "give a command, the kind of store, and its place")
  }
  let store = try store(arguments[2], arguments[3])
  let queue = TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 4)
  )
  switch arguments[1] {
  case "insert":
    guard arguments.count > 4, let count = Int(arguments[4]), count > 0 else {
      throw Mistake(description: "give a number of orders")
    }
    try await queue.open()
    for number in 1...count {
      let statement = try queue.insertStatement(for: Order(number), uniqueKey: "\(number)")
      if number == 1 { write(statement.text) }
      let parameters = try JSONEncoder().encode(statement.parameters.map(Parameter.init))
      write(String(decoding: parameters, as: UTF8.self))
    }
  case "ship":
    await queue.register(Order.self) { order, _ in write("\(order.number)") }
    try await queue.run()
  default: throw Mistake(description: "'\(arguments[1])' is neither insert nor ship")
  }
  try await store.close()
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(2)
}
