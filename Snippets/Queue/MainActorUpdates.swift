//! Shows downloads on the main actor: a handler runs there, and progress and events arrive there.

import SteadfastQueue

// snippet.model
@MainActor final class DownloadsModel {
  private(set) var lines: [String] = []
  private(set) var fractions: [String: Double] = [:]

  func show(_ line: String) { lines.append(line) }

  /// Follows all events until `count` tasks are shown as done.
  func follow(_ events: TaskEvents, until count: Int) async {
    for await event in events {
      switch event {
      case .started(let task): show("\(task.name) begins")
      case .failed(let task, let reason, _, _):
        show("\(task.name) failed: \(reason)")
      case .succeeded(let task, _): show("\(task.name) is done")
      default: break
      }
      if lines.count(where: { $0.hasSuffix("is done") }) == count { break }
    }
  }

  /// Follows one task until it ends.
  func follow(_ task: EnqueuedTask, as name: String) async {
    for await fraction in task.progress { fractions[name] = fraction }
  }
}
// snippet.end

struct Download: TaskPayload { var file: String }
struct ShowBanner: TaskPayload { var text: String }

let model = DownloadsModel()
let queue = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 4))

// snippet.handlers
await queue.register(Download.self, maxConcurrentTasks: 2) {
  download,
  context in
  for step in 1...4 {
    // The work runs away from the main actor.
    context.report(progress: Double(step) / 4)
  }
  // The key keeps a second attempt from adding a second banner while the
  // first one waits.
  try await context.enqueue(
    ShowBanner(text: "\(download.file) is here"),
    uniqueKey: "banner \(context.id)"
  )
}
await queue.register(ShowBanner.self) { @MainActor banner, _ in
  model.show("banner: \(banner.text)")
}
// snippet.end

// snippet.follow
let events = queue.events  // starts here, before anything can happen
async let following: Void = model.follow(events, until: 4)
let downloads = try await queue.enqueue(contentsOf: [
  Download(file: "a"), Download(file: "b"),
])
async let first: Void = model.follow(downloads[0], as: "a")
async let second: Void = model.follow(downloads[1], as: "b")

async let running: Void = queue.run()
_ = await (first, second, following)
await queue.shutDown()
try await running
// snippet.end
print(model.lines.joined(separator: "\n"))
print(model.fractions.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" })
