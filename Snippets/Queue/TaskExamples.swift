//! Short types and calls: how a task is described, added, read and changed.

import Foundation
import SteadfastQueue

struct Photo: TaskPayload { var name = "beach" }
struct Download: TaskPayload {
  var name = "map"

  func fetch() async throws -> String { name }
}
struct Unpack: TaskPayload { var file: String }
struct Mail: TaskPayload { var address: String }
struct SendReceipt: TaskPayload { var order: Int }
struct Export: TaskPayload { var account: String }
struct CreateAlbum: TaskPayload { var title: String }
struct UploadCover: TaskPayload {}
struct Share: TaskPayload {}
struct Notify: TaskPayload { var album: String }

func fetch(_ download: Download) async throws -> String { download.name }

// snippet.payload
struct PostComment: TaskPayload { var text: String }
// snippet.end

// snippet.sync
struct Sync: TaskPayload {
  var account: String
  var options: TaskOptions {
    TaskOptions(maxRetries: .alwaysRetry, orderKey: account)
  }
  var uniqueKey: String? { account }
}
// snippet.end

struct FirstPostComment: Decodable { var body: String }

// snippet.version
extension PostComment {
  static var schemaVersion: Int { 2 }
  static func decode(from json: Data, version: Int) throws -> PostComment {
    guard version < 2 else {
      return try JSONDecoder().decode(Self.self, from: json)
    }
    let old = try JSONDecoder().decode(FirstPostComment.self, from: json)
    return PostComment(text: old.body)
  }
}
// snippet.end

/// The options, in the order of their labels.
func allOptions(_ first: TaskID, _ date: Date) -> TaskOptions {
  // snippet.labels
  TaskOptions(
    availableDate: date,
    delay: .seconds(60),
    expiryDate: date + 3600,
    maxRetries: 5,
    usesBackoff: true,
    timeLimit: .seconds(30),
    priority: .high,
    orderKey: "album 7",
    blocksOrderOnFailure: true,
    dependencies: [first],
    dependencyRule: .allEnded,
    onDuplicate: .replace,
    uniqueFor: .seconds(3600),
    maxDelay: .seconds(600),
    conditions: [.network],
    tags: ["photo"],
    metadata: ["tenant": "acme"]
  )
  // snippet.end
}

func add(to queue: TaskQueue, _ photo: Photo, _ photos: [Photo], _ album: String) async throws {
  // snippet.options
  let options = TaskOptions(priority: .high)
  try await queue.enqueue(contentsOf: photos, options: options)
  // snippet.end
  // snippet.now
  try await queue.enqueue(
    photo,
    options: TaskOptions(timeLimit: .seconds(30), tags: ["photo"])
  )
  // snippet.end
  // snippet.json
  let payload: JSONValue = ["wow": "so important", "retries": 3]
  try await queue.enqueue(name: "PostThisVitalThing", payload)
  // snippet.end
  // snippet.together
  try await queue.enqueue { tasks in
    let album = try tasks.add(CreateAlbum(title: "Summer"))
    let cover = try tasks.add(UploadCover())
    try tasks.add(Share(), options: TaskOptions(dependencies: [album, cover]))
  }
  // snippet.end
  // snippet.batch
  let notice = Notify(album: album)
  let batch = try await queue.enqueue(contentsOf: photos, then: notice)
  // snippet.end
  print(batch)
}

func addFromHandlers(of queue: TaskQueue) async {
  // snippet.follow-up
  await queue.register(Download.self) { download, context in
    let unpack = Unpack(file: try await download.fetch())
    try await context.enqueue(unpack, uniqueKey: "unpack \(context.id)")
  }
  // snippet.end
  // snippet.follow-up-once
  await queue.register(Download.self) { download, context in
    let file = try await fetch(download)
    try await context.enqueue(
      Unpack(file: file),
      uniqueKey: "unpack \(context.id)",
      options: TaskOptions(uniqueFor: .seconds(86_400))
    )
  }
  // snippet.end
}

func change(_ id: TaskID, _ task: EnqueuedTask, _ queue: TaskQueue) async throws {
  // snippet.update
  let corrected = PostComment(text: "corrected")
  try await queue.update(task.id, with: corrected, priority: .high)
  // snippet.end
  // snippet.update-id
  try await queue.update(
    id,
    with: PostComment(text: "corrected"),
    priority: .high
  )
  // snippet.end
}

func read(_ queue: TaskQueue, key: String) async throws {
  // snippet.letters
  let letters = try await queue.tasks(matching: .deadLetters)
  for letter in letters where letter.name == Mail.taskName {
    let mail = try letter.payload(as: Mail.self)
    // snippet.hide
    print(mail.address)
    // snippet.show
  }
  // snippet.end
  // snippet.blocking
  let filter = TaskFilter(states: [.abandoned, .cancelled], orderKeys: [key])
  let dead = try await queue.tasks(matching: filter)
  // snippet.end
  print(dead)
}

func schedules(in berlin: TimeZone) throws -> [ScheduleRule] {
  // snippet.rules
  let rules: [ScheduleRule] = [
    try .every(.seconds(900)),
    try .daily(at: .time(2, 30), in: berlin),
    try .weekly(on: [.monday], at: .time(6, 0), in: berlin),
    try .cron("30 8 * * 1-5", in: berlin),
  ]
  // snippet.end
  return rules
}

let queue = TaskQueue()
let first = try await queue.enqueue(PostComment(text: "helo"))
try await add(to: queue, Photo(), [Photo(name: "cat")], "Summer")
await addFromHandlers(of: queue)
try await change(first.id, first, queue)
try await read(queue, key: "album 7")
print(allOptions(first.id, .now))
if let berlin = TimeZone(identifier: "Europe/Berlin") { print(try schedules(in: berlin)) }
