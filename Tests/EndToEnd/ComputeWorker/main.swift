import Dispatch
import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SteadfastSQLite

/// A process whose handlers compute without ever suspending.
///
///     ComputeWorker STORE PLACE fill COUNT   adds tasks
///     ComputeWorker STORE PLACE work         performs tasks until SIGTERM, and prints events
///     ComputeWorker STORE PLACE wait         performs tasks that wait until they are cancelled
///     ComputeWorker STORE PLACE add SECONDS  adds a task, or fails if its store is away for longer
///     ComputeWorker STORE PLACE cancel       cancels all tasks, and prints their number
///     ComputeWorker STORE PLACE list         prints the state of each stored task
///
/// STORE is `sqlite`, with a file as PLACE, or `postgresql`, with a prefix of tables as PLACE, in
/// the database that STEADFAST_POSTGRESQL names. An error is one line on standard error.
struct Film: TaskPayload { var number: Int }

enum Limits {
  static let lease = Duration.seconds(1)
  static let computing = Duration.milliseconds(2_500)
  static let shutDown = Duration.seconds(5)
  /// The duration of the claims of tasks that wait, and the interval of their polls.
  ///
  /// Both are long, so that a command arrives in time only if a hint announces it.
  static let waiting = StoreSharing(leaseDuration: .seconds(120), pollInterval: .seconds(120))
}

func writeLine(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

func exitWithError(_ text: String) -> Never {
  FileHandle.standardError.write(Data("\(text)\n".utf8))
  exit(2)
}

func makeStore(
  ofKind kind: String,
  at place: String,
  _ sharing: StoreSharing
) -> any Persistence {
  switch kind {
  #if SQLite
  case "sqlite": return SQLiteStore(at: URL(filePath: place), sharing: sharing)
  #endif
  #if PostgreSQL
  case "postgresql":
    let server = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"]
    return PostgreSQLStore(server ?? "", prefix: place, sharing: sharing)
  #endif
  default: exitWithError("no store '\(kind)' with \(sharing) in this build; check its traits")
  }
}

func compute() {
  let end = ContinuousClock.now + Limits.computing
  while ContinuousClock.now < end {}
}

func waitUntilCancelled() async throws {
  for await _ in AsyncStream<Void>.makeStream().stream {}
  try Task.checkCancellation()
}

func performTasksUntilSIGTERM(
  of queue: TaskQueue,
  _ perform: @escaping @Sendable () async throws -> Void
) async throws {
  await queue.register(Film.self) { film, _ in
    writeLine("begins \(film.number)")
    defer { writeLine("ends \(film.number)") }
    try await perform()
  }
  signal(SIGTERM, SIG_IGN)
  let source = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
  source.setEventHandler { @Sendable in queue.beginShutDown(within: Limits.shutDown) }
  source.activate()
  try await queue.run()
}

let arguments = CommandLine.arguments
guard arguments.count > 3 else {
  exitWithError(
    "give sqlite or postgresql, the place of the store, and fill, work, wait, add, cancel or list"
  )
}
let persistence = makeStore(
  ofKind: arguments[1],
  at: arguments[2],
  arguments[3] == "wait"
    ? Limits.waiting
    : StoreSharing(leaseDuration: Limits.lease, pollInterval: .milliseconds(300))
)
let number = arguments.count > 4 ? Int(arguments[4]) ?? 0 : 0
func makeQueue(on store: some Persistence) -> TaskQueue {
  TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(
      maxConcurrentTasks: arguments[3] == "wait" ? 250 : 4,
      cancelledRetention: .forever,
      storeTimeout: .seconds(arguments[3] == "add" ? number : 30)
    )
  )
}
let queue = makeQueue(on: persistence)

do {
  switch arguments[3] {
  case "fill":
    try await queue.enqueue(contentsOf: (0..<number).map { Film(number: $0) })
  case "work": try await performTasksUntilSIGTERM(of: queue, compute)
  case "wait": try await performTasksUntilSIGTERM(of: queue, waitUntilCancelled)
  case "add": try await queue.enqueue(Film(number: number))
  case "cancel": writeLine("\(try await queue.cancelAll())")
  case "list":
    for task in try await queue.tasks(matching: TaskFilter()) {
      writeLine("\(task.state) \(task.interruptionCount)")
    }
  default: exitWithError("'\(arguments[3])' is neither fill, work, wait, add, cancel nor list")
  }
  try await persistence.close()
} catch {
  exitWithError("\(error)")
}
