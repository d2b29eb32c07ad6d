import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SteadfastSQLite

/// A process that writes statements that add tasks, or that performs the added tasks.
///
///     StatementWorker insert STORE PLACE COUNT  writes a statement, and parameters for some orders
///     StatementWorker ship STORE PLACE          writes the numbers of orders, and performs them
///
/// STORE is sqlite, and PLACE the path of its file, or postgresql, and PLACE its connection string.
/// An error is one line on standard error, with the exit code 2.
struct Order: TaskPayload {
  let number: Int
  /// The text; some texts are so long that the store keeps the payload in a separate row.
  let text: String

  init(_ number: Int) {
    self.number = number
    text = String(repeating: "long ", count: number % 10 == 0 ? 600 : 0)
  }
}

/// A parameter as JSON: a number, a text, null, or an object with bytes as hexadecimal digits.
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

func writeLine(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

func makeStore(ofKind kind: String, at place: String) throws -> any Persistence {
  let sharing = StoreSharing(leaseDuration: .seconds(2), pollInterval: .seconds(1))
  switch kind {
  #if SQLite
  case "sqlite": return SQLiteStore(at: URL(filePath: place), sharing: sharing)
  #endif
  #if PostgreSQL
  case "postgresql": return PostgreSQLStore(place, sharing: sharing)
  #endif
  default:
    throw Mistake(description: "no store '\(kind)' with \(sharing) in this build; check its traits")
  }
}

do {
  let arguments = CommandLine.arguments
  guard arguments.count > 3 else {
    throw Mistake(
      description: "give insert or ship, sqlite or postgresql, and the place of the store"
    )
  }
  let store = try makeStore(ofKind: arguments[2], at: arguments[3])
  let queue = TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 4)
  )
  switch arguments[1] {
  case "insert":
    guard arguments.count > 4, let count = Int(arguments[4]), count > 0 else {
      throw Mistake(description: "give the number of orders, which must be greater than 0")
    }
    try await queue.open()
    for number in 1...count {
      let statement = try queue.insertStatement(for: Order(number), uniqueKey: "\(number)")
      if number == 1 { writeLine(statement.text) }
      let parameters = try JSONEncoder().encode(statement.parameters.map(Parameter.init))
      writeLine(String(decoding: parameters, as: UTF8.self))
    }
  case "ship":
    await queue.register(Order.self) { order, _ in writeLine("\(order.number)") }
    try await queue.run()
  default: throw Mistake(description: "'\(arguments[1])' is neither insert nor ship")
  }
  try await store.close()
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(2)
}
