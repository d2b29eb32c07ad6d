//! Shares an album when its cover is uploaded, and sends a message when a batch of photos is.

import Foundation
import SteadfastQueue

struct CreateAlbum: TaskPayload { var title: String }
struct UploadCover: TaskPayload { var file: String }
struct ShareAlbum: TaskPayload { var title: String }
struct UploadPhoto: TaskPayload { var file: String }
struct UploadFolder: TaskPayload { var files: [String] }
struct SendMessage: TaskPayload { var text: String }

let queue = TaskQueue(name: "albums")
await queue.register(CreateAlbum.self) { album, _ in print("created \(album.title)") }
await queue.register(UploadCover.self) { cover, _ in print("uploaded \(cover.file)") }
await queue.register(ShareAlbum.self) { album, _ in print("shared \(album.title)") }
await queue.register(UploadPhoto.self) { photo, _ in
  guard photo.file != "broken.jpg" else { throw TaskAbandoned("no such photo") }
  print("uploaded \(photo.file)")
}
await queue.register(SendMessage.self) { message, context in
  // snippet.failed
  let failed = context.dependencies.failed.count
  print(message.text, failed == 0 ? "" : "(\(failed) failed)")
  // snippet.end
}

// snippet.after
try await queue.enqueue { tasks in
  let album = try tasks.add(CreateAlbum(title: "Summer"))
  let cover = try tasks.add(UploadCover(file: "cover.jpg"))
  try tasks.add(
    ShareAlbum(title: "Summer"),
    options: TaskOptions(dependencies: [album, cover])
  )
}
// snippet.end
try await queue.runAvailable()

// snippet.before
let cover = try await queue.enqueue(UploadCover(file: "winter.jpg"))
try await queue.enqueue(
  ShareAlbum(title: "Winter"),
  options: TaskOptions(dependencies: [cover.id])
)
// snippet.end
try await queue.runAvailable()

// snippet.batch
let photos = ["cat.jpg", "dog.jpg", "cow.jpg"].map(UploadPhoto.init)
let batch = try await queue.enqueue(
  contentsOf: photos,
  then: SendMessage(text: "All photos are there.")
)
// snippet.end
try await queue.runAvailable()
print(try await batch.follower.outcome())

// snippet.more
await queue.register(UploadFolder.self) { folder, context in
  let photos = folder.files.map(UploadPhoto.init)
  try await context.enqueueInBatch(contentsOf: photos)
}
// snippet.end
let report = try await queue.enqueue(
  contentsOf: [UploadFolder(files: ["a.jpg", "broken.jpg"])],
  then: SendMessage(text: "The folder was read."),
  followerOptions: TaskOptions(dependencyRule: .allEnded)
)
// Each pass performs what is available when it begins.
while try await queue.runAvailable() > 0 {}
if let progress = try await report.progress() { print(progress) }
