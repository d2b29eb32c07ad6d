//! Photos and mails, each in a queue of its own, on one store.

import Foundation
import SteadfastQueue

struct UploadPhoto: TaskPayload { var file: String }
struct SendMail: TaskPayload { var text: String }

// snippet.group
let group = TaskQueueGroup(
  configuration: TaskQueueConfiguration(maxConcurrentTasks: 2)
) { queue in
  // Handlers that every queue has.
  await queue.register(SendMail.self) { mail, _ in
    print("\(queue.name): \(mail.text)")
  }
}
let photos = try await group.addQueue(
  "photos",
  configuration: TaskQueueConfiguration(maxConcurrentTasks: 5)
)
try await group.addQueue("mails")
// A handler of one queue.
await photos.register(UploadPhoto.self) { photo, _ in
  print("uploaded \(photo.file)")
}
// snippet.end

// snippet.enqueue
let photo = try await group.enqueue(
  UploadPhoto(file: "cat.jpg"),
  on: "photos"
)
try await group.enqueue(
  SendMail(text: "The cat is there."),
  on: "mails",
  options: TaskOptions(dependencies: [photo.id])
)
// snippet.end

// snippet.run
try await withThrowingTaskGroup { tasks in
  tasks.addTask { try await group.run() }
  await group.pause()
  await group.resume()
  try await group.waitUntilIdle()
  await group.shutDown()
  try await tasks.waitForAll()
}
// snippet.end

// snippet.unknown
do {
  try await group.enqueue(UploadPhoto(file: "dog.jpg"), on: "photo")
} catch {
  print(error)
}
// snippet.end

// snippet.look
for task in try await group.tasks() {
  print(task.queue, task.name, task.state)
}
// snippet.end
