//! Pauses large uploads while the network is metered, and waits until the other tasks are done.

import SteadfastQueue

struct Message: TaskPayload { var text: String }

struct Upload: TaskPayload { var photo: String }

let queue = TaskQueue()
await queue.register(Message.self) { message, _ in print("sent: \(message.text)") }
await queue.register(Upload.self) { upload, _ in print("uploaded: \(upload.photo)") }

async let running: Void = queue.run()

// snippet.pause
await queue.pause(name: Upload.taskName)
// snippet.end
try await queue.enqueue(Upload(photo: "beach"))
try await queue.enqueue(Message(text: "on our way"))

// snippet.idle
try await queue.waitUntilIdle()
print("all is done that may be; \(try await queue.count) wait")
// snippet.end

// snippet.resume
await queue.resume(name: Upload.taskName)
// snippet.end
try await queue.waitUntilIdle()
await queue.shutDown()
try await running
