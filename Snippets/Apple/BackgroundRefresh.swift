//! Makes a background pass when the system launches the app for it. It is compiled for systems with
//! the framework BackgroundTasks.

#if canImport(BackgroundTasks) && !os(macOS) && !os(watchOS)
import BackgroundTasks
import SteadfastQueue

let scheduler = BackgroundScheduler(persistence: InMemoryStore())
// snippet.register
BGTaskScheduler.shared.register(
  forTaskWithIdentifier: "com.example.refresh",
  using: nil
) { @Sendable task in
  scheduler.perform(task)
}
// snippet.end
#else
print("build it for iOS")
#endif
