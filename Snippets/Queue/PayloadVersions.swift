//! Reads payloads that an older version of the program stored, after their type has changed.

import Foundation
import SteadfastQueue

let folder = FileManager.default.temporaryDirectory.appending(path: "PayloadVersions-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "queue.jsonl")

/// The first version of the program, with the old type.
func runFirstVersion() async throws {
  // snippet.old
  struct PostComment: TaskPayload { var body: String }
  // snippet.end
  let store = JSONFileStore(at: file)
  try await TaskQueue(persistence: store).enqueue(PostComment(body: "from last year"))
  try await store.close()
}

// snippet.new
struct Comment: TaskPayload {
  var text: String
  var language: String?

  static var formerTaskNames: [String] { ["PostComment"] }
  static var schemaVersion: Int { 2 }

  static func decode(from json: Data, version: Int) throws -> Comment {
    guard version < 2 else {
      return try JSONDecoder().decode(Comment.self, from: json)
    }
    struct First: Decodable { var body: String }
    return Comment(
      text: try JSONDecoder().decode(First.self, from: json).body
    )
  }
}
// snippet.end

try await runFirstVersion()
let store = JSONFileStore(at: file)
let queue = TaskQueue(persistence: store)
await queue.register(Comment.self) { comment, context in
  print("\(context.name): \(comment.text), \(comment.language ?? "in no language")")
}
try await queue.enqueue(Comment(text: "from this year", language: "en"))
try await queue.runAvailable()
// snippet.newer
let newer = try await queue.tasks(
  matching: TaskFilter(
    names: [Comment.taskName],
    states: [.waiting],
    unhandledBy: [Comment.taskName: Comment.schemaVersion]
  )
)
// snippet.end
print("\(newer.count) comments wait for a newer version")
try await store.close()
