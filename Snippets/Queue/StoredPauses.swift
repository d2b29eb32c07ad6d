//! Pauses uploads beyond the end of the process, and remembers how far a synchronisation has come.

import Foundation
import SteadfastQueue

struct Upload: TaskPayload { var photo: String }

let folder = FileManager.default.temporaryDirectory.appending(path: "StoredPauses-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "uploads.jsonl")

/// Makes a queue on the file, as each start of the program does.
func start() async -> (TaskQueue, JSONFileStore) {
  let store = JSONFileStore(at: file)
  let queue = TaskQueue(persistence: store)
  await queue.register(Upload.self) { upload, _ in print("uploaded: \(upload.photo)") }
  return (queue, store)
}

var (queue, store) = await start()
try await queue.enqueue(Upload(photo: "beach"))

// snippet.pause
// A person turns uploads off.
try await queue.pause(name: Upload.taskName, durability: .durable)
// snippet.end
try await store.close()

(queue, store) = await start()
// snippet.restart
// The next start of the program: nothing has to be paused again.
let count = try await queue.runAvailable()
print(count, queue.pausedNames)  // 0 ["Upload"]
// snippet.end
guard count == 0, queue.pausedNames == ["Upload"] else { exit(1) }

// snippet.since
let pause = try await queue.storedPause()
for name in pause.names.sorted() {
  let since = pause.dates[name]?.formatted() ?? "an unknown date"
  print("\(name) is paused since \(since)")
}
// snippet.end
guard pause.dates[Upload.taskName] != nil else { exit(1) }

// snippet.resume
try await queue.resume(name: Upload.taskName, durability: .durable)
// snippet.end
guard try await queue.runAvailable() == 1 else { exit(1) }

// snippet.value
let old = try await queue.value(named: "cursor")
let page = old.map { String(decoding: $0, as: UTF8.self) } ?? "page 1"
print("synchronising from \(page)")
try await queue.setValue(Array("page 2".utf8), named: "cursor")
// snippet.end

// snippet.replace
// The first process leads, until it removes the value.
let isLeader = try await queue.setValue(
  Array("host 1".utf8),
  named: "leader",
  replacing: nil
)
// snippet.end
guard isLeader else { exit(1) }
await queue.shutDown()
try await store.close()
