#if SQLite
import Foundation
import SteadfastQueue
import SteadfastSQLite

/// One of several processes that use the same database.
///
///     SQLiteWorker open DATABASE        opens and closes the database
///     SQLiteWorker fill DATABASE COUNT  adds tasks, and writes their IDs
///     SQLiteWorker work DATABASE        performs tasks, and writes their IDs when they start
///
/// With `fill-new` and `work-new` in place of `fill` and `work`, the program is its own next
/// version: its payloads have the version 2, and it reads those of version 1, too.
///
/// An error is one line on standard error, with the exit code 2.
struct Chore: TaskPayload {
  let number: Int
  let text: String

  /// Whether the task has rows in other tables too: its payload is long, and it remembers a step.
  var isLarge: Bool { number % 10 == 0 }

  init(_ number: Int) {
    self.number = number
    text = number % 10 == 0 ? String(repeating: "long ", count: 600) : ""
  }
}

/// The payload of the next version of the program.
struct NewChore: TaskPayload {
  static let taskName = Chore.taskName
  static let schemaVersion = 2

  let number: Int
}

func writeLine(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

do {
  let arguments = CommandLine.arguments
  guard arguments.count > 2 else {
    let message = "give a command (open, fill or work) and the path of a database\n"
    FileHandle.standardError.write(Data(message.utf8))
    exit(1)
  }
  let sharing = StoreSharing(leaseDuration: .seconds(4), pollInterval: .seconds(1))
  let store = SQLiteStore(at: URL(filePath: arguments[2]), sharing: sharing)
  let queue = TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 4)
  )
  let count = arguments.count > 3 ? Int(arguments[3]) ?? 0 : 0
  switch arguments[1] {
  case "open": try await store.open()
  case "fill":
    let tasks = try await queue.enqueue(contentsOf: (0..<count).map { Chore($0) })
    writeLine(tasks.map(\.id.description).joined(separator: "\n"))
  case "fill-new":
    let tasks = try await queue.enqueue(contentsOf: (0..<count).map(NewChore.init))
    writeLine(tasks.map(\.id.description).joined(separator: "\n"))
  case "work-new":
    await queue.register(NewChore.self) { _, context in writeLine(context.id.description) }
    try await queue.run()
  default:
    await queue.register(Chore.self) { chore, context in
      writeLine(context.id.description)
      if chore.isLarge { _ = try await context.step("once") { _ in chore.number } }
    }
    try await queue.run()
  }
  try await store.close()
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(2)
}
#else
print("this program needs the trait SQLite; build it with --traits SQLite")
#endif
