/// How queues in several processes use one store at the same time.
public struct StoreSharing: Sendable, Hashable {
  /// How long a claim lasts unless it is extended.
  ///
  /// A queue extends the claims of its tasks three times as often. It goes on, in a cancelled run
  /// too, until their handlers have ended and the results are stored. When a process is gone, its
  /// tasks are available again after this time, or up to a third of it later. The store's clock
  /// measures it, so the clocks of the processes may differ.
  public var leaseDuration: Duration
  /// How often a waiting queue looks for tasks that other queues have added.
  public var pollInterval: Duration

  /// Makes the settings; by default a minute, and five seconds.
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
