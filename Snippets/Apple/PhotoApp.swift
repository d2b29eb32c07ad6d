//! An app around the queue of `AppUploads`: it runs the queue in the foreground, winds it up in the
//! background, and goes on in a background task of the system. It is compiled for iOS.

#if canImport(BackgroundTasks) && canImport(SwiftUI) && canImport(UIKit) && !os(watchOS)
import BackgroundTasks
import Network
import SteadfastQueue
import SwiftUI
import UIKit

// snippet.app
@main struct PhotoApp: App {
  @Environment(\.scenePhase) private var phase
  private let uploads: Uploads

  init() {
    let folder = URL.applicationSupportDirectory
    try? FileManager.default.createDirectory(
      at: folder,
      withIntermediateDirectories: true
    )
    let file = folder.appending(path: "uploads.jsonl")
    uploads = Uploads(store: JSONFileStore(at: file)) { try await send($0) }
    uploads.start()
  }

  var body: some Scene {
    WindowGroup { ContentView() }
      .onChange(of: phase) { _, phase in
        switch phase {
        case .active: uploads.start()
        case .background: windUpInBackground(uploads)
        default: break
        }
      }
  }
}

/// Asks the system for the seconds that winding up takes.
@MainActor func windUpInBackground(_ uploads: Uploads) {
  let application = UIApplication.shared
  let work = application.beginBackgroundTask()
  Task {
    await uploads.windUp(within: .seconds(10))
    application.endBackgroundTask(work)
  }
}
// snippet.end

@MainActor func followNetwork(for uploads: Uploads) async throws {
  // snippet.network
  for await path in NWPathMonitor() where path.status == .satisfied {
    try await uploads.queue.performNow(matching: .retrying)
  }
  // snippet.end
}

@MainActor func registerBackgroundTask(for uploads: Uploads) {
  // snippet.register
  BGTaskScheduler.shared.register(
    forTaskWithIdentifier: "com.example.uploads",
    using: nil
  ) { @Sendable [uploads] task in
    guard let task = task as? BGProcessingTask else { return }
    perform(task, uploads)
  }
  // snippet.end
}

// snippet.submit
/// Asks the system for a background task, if uploads are left.
func submitBackgroundTask(for uploads: Uploads) async throws {
  guard try await uploads.queue.count > 0 else { return }
  let request = BGProcessingTaskRequest(
    identifier: "com.example.uploads"
  )
  request.requiresNetworkConnectivity = true
  try BGTaskScheduler.shared.submit(request)
}
// snippet.end

// snippet.perform
func perform(_ background: BGProcessingTask, _ uploads: Uploads) {
  // The system lets any thread end the task.
  nonisolated(unsafe) let background = background
  let work = Task { @MainActor in
    uploads.start()
    let isDone = (try? await uploads.queue.waitUntilIdle()) != nil
    // The app may have come to the foreground, where the queue goes on.
    if UIApplication.shared.applicationState == .background {
      await uploads.windUp(within: .seconds(1))
      // The system has forgotten the request. What is left needs another.
      try? await submitBackgroundTask(for: uploads)
    }
    background.setTaskCompleted(success: isDone)
  }
  background.expirationHandler = { work.cancel() }
}
// snippet.end

struct ContentView: View {
  var body: some View { Text("photos") }
}

func send(_ photo: String) async throws {}

/// What the snippet `AppUploads` makes of this.
@MainActor final class Uploads {
  let queue: TaskQueue

  init(store: some Persistence, upload: @escaping @Sendable (String) async throws -> Void) {
    queue = TaskQueue(persistence: store)
  }

  func start() {}

  func windUp(within limit: Duration) async {}
}
#else
@main struct PhotoAppElsewhere {
  static func main() { print("build it for iOS") }
}
#endif
