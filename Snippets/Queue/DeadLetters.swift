//! Lists the dead letters, tries some of them once more, and removes the others.

import SteadfastQueue

struct Upload: TaskPayload {
  var photo: String

  var options: TaskOptions { TaskOptions(tags: ["photo"]) }
  var uniqueKey: String? { photo }
}

/// A service that refuses some photos until it is repaired.
actor Service {
  private var isBroken = true

  func repair() { isBroken = false }

  func receive(_ photo: String) throws {
    if photo == "too large" { throw TaskAbandoned("more than 20 MB") }
    if isBroken { throw TaskAbandoned("the service says 500") }
  }
}

let service = Service()

// snippet.queue
let queue = TaskQueue(
  configuration: TaskQueueConfiguration(
    // Retains the last 100 abandoned tasks, for at most a week.
    abandonedRetention: Retention(
      maxCount: 100,
      maxAge: .seconds(7 * 86_400)
    )
  )
)
await queue.register(Upload.self) { upload, _ in
  try await service.receive(upload.photo)
}
// snippet.end
let photos = ["beach", "too large", "forest"]
try await queue.enqueue(
  contentsOf: photos.map(Upload.init),
  options: TaskOptions(tags: ["holiday"])
)
try await queue.runAvailable()

// snippet.list
for letter in try await queue.tasks(matching: .deadLetters) {
  let upload = try letter.payload(as: Upload.self)
  print("\(upload.photo): \(letter.lastError ?? "")")
}
// snippet.end

// snippet.requeue
await service.repair()
let letters = try await queue.tasks(matching: .deadLetters)
let repaired = letters.filter { $0.lastError == "the service says 500" }
let count = try await queue.retry(
  matching: TaskFilter(ids: Set(repaired.map(\.id)))
)
// snippet.end
print("\(count) are tried once more, \(try await queue.runAvailable()) attempts")

// snippet.remove
let removed = try await queue.remove(matching: .deadLetters)
// snippet.end
print("\(removed) removed, \(try await queue.count(matching: TaskFilter())) left")
