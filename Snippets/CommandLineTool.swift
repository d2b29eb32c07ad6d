//! A command-line tool with a durable queue: `add`, `run`, `list`, `retry` and `cancel`, each in a
//! process of its own.

import Foundation
import SteadfastQueue

// snippet.task
/// A file that is to be copied.
struct Copy: TaskPayload {
  var source: String
  var target: String

  // Adding the same copy twice adds one task. The type must be `String?`.
  var uniqueKey: String? { target }

  func perform() throws {
    let partial = target + ".partial"
    try? FileManager.default.removeItem(atPath: partial)
    try FileManager.default.copyItem(atPath: source, toPath: partial)
    try? FileManager.default.removeItem(atPath: target)
    try FileManager.default.moveItem(atPath: partial, toPath: target)
  }
}
// snippet.end

// snippet.open
/// Opens the queue in a file, and closes it when the body has returned.
func withQueue<Result>(
  in file: URL,
  _ body: (TaskQueue) async throws -> Result
) async throws -> Result {
  let store = JSONFileStore(at: file)
  let queue = TaskQueue(
    persistence: store,
    configuration: TaskQueueConfiguration(
      maxConcurrentTasks: 4,
      // A tool that is often killed must not take its tasks for those that
      // crash it.
      maxInterruptions: .alwaysRetry
    )
  )
  await queue.register(Copy.self) { copy, _ in try copy.perform() }
  // One process at a time has the file. Wait for another that ends soon.
  try await withRetry(
    .within(.seconds(10), backoff: .constant(.milliseconds(100)))
  ) {
    try await queue.open()
  } shouldRetry: { error, _ in
    (error as? JSONFileError)?.code == .inUse ? .retry : .stop
  }
  do {
    let result = try await body(queue)
    await queue.shutDown()
    try await store.close()
    return result
  } catch {
    await queue.shutDown()
    try? await store.close()
    throw error
  }
}
// snippet.end

// snippet.commands
/// Performs a command, and returns the tool's exit status.
func perform(
  _ command: [String],
  _ queue: TaskQueue
) async throws -> Int32 {
  switch (command.first, command.dropFirst().first) {
  case ("add", _):
    let copies = command.dropFirst().map { file in
      Copy(source: file, target: file + ".copy")
    }
    // A copy that was abandoned before is tried once more.
    let keys = Set(copies.compactMap(\.uniqueKey))
    try await queue.remove(
      matching: TaskFilter(states: [.abandoned], uniqueKeys: keys)
    )
    try await queue.enqueue(contentsOf: copies)
  case ("run", _):
    return try await run(queue)
  case ("list", _):
    for task in try await queue.tasks(matching: TaskFilter()) {
      print(task.id, task.state, task.lastError ?? "")
    }
  case ("retry", let text?):
    guard let id = TaskID(text), try await queue.retry(id) else {
      throw Problem("there is no task \(text)")
    }
  case ("cancel", let text?):
    guard let id = TaskID(text), try await queue.cancel(id) else {
      throw Problem("there is no task \(text), or it has ended")
    }
  default:
    throw Problem("usage: add FILE... | run | list | retry ID | cancel ID")
  }
  return 0
}
// snippet.end

// snippet.run
/// Performs what is due.
///
/// Returns 0 if nothing is left, and 75 if something is.
func run(_ queue: TaskQueue) async throws -> Int32 {
  let events = queue.events
  async let reported: Void = report(events)
  // Ctrl-C lets running copies end, for at most five seconds.
  try await queue.runAvailable(stoppingOn: .sigint, within: .seconds(5))
  // The events end here. A reader that is cancelled misses the last ones.
  await queue.shutDown()
  await reported

  let left = try await queue.tasks()
  guard let date = left.map(\.availableDate).min() else { return 0 }
  print("\(left.count) left; run again from \(date) on")
  return 75
}

func report(_ events: TaskEvents) async {
  for await event in events {
    switch event {
    case .succeeded(let task, _): print("copied \(task.uniqueKey ?? "")")
    case .failed(_, let reason, let date, _):
      print("\(reason); again at \(date)")
    case .abandoned(_, let reason, _): print("abandoned: \(reason)")
    default: break
    }
  }
}
// snippet.end

struct Problem: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// Without arguments, shows each command with files of its own.
func demonstrate() async throws {
  let folder = FileManager.default.temporaryDirectory.appending(path: "Tool-\(UUID())")
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: folder) }
  let (queue, file) = (folder.appending(path: "queue.jsonl"), folder.appending(path: "a.txt").path)
  try Data("text".utf8).write(to: URL(filePath: file))
  for command in [["add", file, file + "-missing"], ["run"], ["list"]] {
    print("status", try await withQueue(in: queue) { try await perform(command, $0) })
  }
  print(try String(contentsOfFile: file + ".copy", encoding: .utf8))
}

// snippet.main
do {
  let command = Array(CommandLine.arguments.dropFirst())
  if command.isEmpty {
    try await demonstrate()
  } else {
    let file = URL(filePath: "copies.jsonl")
    exit(try await withQueue(in: file) { try await perform(command, $0) })
  }
} catch {
  FileHandle.standardError.write(Data("copies: \(error)\n".utf8))
  exit(1)
}
// snippet.end
