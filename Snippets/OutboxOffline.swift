//! An outbox that stores comments while there is no network, even over a restart, and posts them
//! when the network is back. Nine hours pass in milliseconds.

import Foundation
import SteadfastTesting

/// A network that comes and goes, and the server behind it.
actor Network {
  private(set) var isReachable = false
  private(set) var received: [String] = []

  func setReachable(_ isReachable: Bool) { self.isReachable = isReachable }

  func post(_ text: String) throws {
    guard isReachable else { throw URLError(.notConnectedToInternet) }
    received.append(text)
  }
}

let folder = FileManager.default.temporaryDirectory.appending(path: "OutboxOffline-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "comments.jsonl")
let network = Network()

// snippet.outbox
struct PostComment: TaskPayload { var text: String }

/// Posts comments, now or when there is a network.
struct Outbox: Sendable {
  let queue: TaskQueue

  init(
    _ store: some Persistence,
    _ network: Network,
    clock: some WallClock
  )
    async
  {
    queue = TaskQueue(name: "outbox", persistence: store, clock: clock)
    await queue.register(PostComment.self) { comment, _ in
      // Offline: snooze the task. That counts no retry.
      guard await network.isReachable else {
        throw TaskSnoozed(for: .seconds(3600))
      }
      try await network.post(comment.text)
    }
  }

  /// Tries all postponed comments now.
  ///
  /// Call it when the network is back. The comments have as many retries
  /// left as before. A comment that is scheduled for tomorrow waits until
  /// then.
  func networkIsBack() async throws {
    try await queue.performNow(matching: .retrying)
  }
}
// snippet.end

// snippet.offline
try await withVirtualTime { time in
  let store = JSONFileStore(at: file)
  let outbox = await Outbox(store, network, clock: time.clock)
  try await outbox.queue.enqueue(
    contentsOf: ["hello", "anybody?"].map(PostComment.init)
  )
  let tomorrow = time.clock.date.addingTimeInterval(86_400)
  try await outbox.queue.enqueue(
    PostComment(text: "good morning"),
    availableDate: tomorrow
  )
  try await outbox.queue.runAvailable()
  let count = try await outbox.queue.count
  print(
    "offline: \(count) comments wait, posted \(await network.received)"
  )
  // The app is closed.
  try await store.close()
}

try await withVirtualTime { time in
  let store = JSONFileStore(at: file)
  let outbox = await Outbox(store, network, clock: time.clock)
  async let running: Void = outbox.queue.run()
  await time.advance(by: .seconds(9 * 3600))
  print("nine hours later: \(try await outbox.queue.count) comments wait")

  await network.setReachable(true)
  try await outbox.networkIsBack()
  await time.advance(by: .zero)
  print("online: posted \(await network.received)")
  await outbox.queue.shutDown()
  try await running
  try await store.close()
}
// snippet.end
