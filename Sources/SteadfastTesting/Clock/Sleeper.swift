/// A suspended sleep on a virtual clock.
struct Sleeper {
  let continuation: CheckedContinuation<Void, any Error>
  let taskName: String?

  /// Makes the sleep of the current task.
  init(_ continuation: CheckedContinuation<Void, any Error>) {
    self.continuation = continuation
    if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
      taskName = Task.name
    } else {
      taskName = nil
    }
  }
}
