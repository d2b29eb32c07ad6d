/// How queues in several processes use one store at the same time.
public struct StoreSharing: Sendable {
  /// How long a claim lasts unless it is extended.
  ///
  /// A queue extends the claims of its tasks three times as often, until their handlers have ended,
  /// in a cancelled run too, and how they ended is stored. When a process has gone, its tasks are
  /// available again after this time.
  public var leaseDuration: Duration
  /// How often a queue that waits looks for tasks that others have added.
  public var pollInterval: Duration

  /// Makes the numbers; by default a minute, and five seconds.
  public init(leaseDuration: Duration = .seconds(60), pollInterval: Duration = .seconds(5)) {
    self.leaseDuration = leaseDuration
    self.pollInterval = pollInterval
  }

  func validate() throws(TaskQueueError) {
    for (name, duration) in [("leaseDuration", leaseDuration), ("pollInterval", pollInterval)] {
      guard duration <= .zero else { continue }
      throw TaskQueueError(
        .invalidArgument,
        "the store's \(name) is \(duration); it must be more than zero"
      )
    }
  }
}
