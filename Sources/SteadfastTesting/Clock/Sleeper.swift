/// A suspended sleep, as the clock keeps it.
struct Sleeper {
  let continuation: CheckedContinuation<Void, any Error>
  let taskName: String?

  /// The sleep of the current task.
  init(_ continuation: CheckedContinuation<Void, any Error>) {
    self.continuation = continuation
    if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
      taskName = Task.name
    } else {
      taskName = nil
    }
  }
}
