extension History {
  /// Something that a store promises, and that a history can show to be broken.
  @nonexhaustive
  public enum Promise: String, Sendable, Hashable, CaseIterable {
    /// No acknowledged task is missing.
    case nothingIsLost = "H1"
    /// Nothing is performed that was not enqueued, and nothing twice that was enqueued once.
    case nothingIsAdded = "H2"
    /// A task ends once, by its latest lease.
    case oneEnd = "H3"
    /// A task has one holder at a time.
    case oneHolder = "H4"
    /// Attempts and interruptions are counted exactly.
    case exactCounts = "H5"
    /// Tasks with one order key are performed in their order.
    case orderOfKeys = "H6"
    /// Of the tasks with one order key, one is performed at a time.
    case oneRunnerForKey = "H7"
    /// A task that waits for others is performed after all of them, and ends once.
    case waitingTasksAreLast = "H8"
    /// No more attempts begin within an interval than a limit allows.
    case limitsHold = "H9"
    /// Everything ends once the faults have ended.
    case everythingEnds = "H10"

    /// What is promised.
    public var sentence: String {
      switch self {
      case .nothingIsLost: "No acknowledged task is missing: it has ended, or is in the store."
      case .nothingIsAdded:
        "Nothing is handed out that was not enqueued, and what was enqueued once ends once."
      case .oneEnd: "A task has one accepted end, which names the latest lease handed out."
      case .oneHolder: "A task is handed out again only if its claim has ended or run out."
      case .exactCounts: "A task has as many retries and interruptions as it has had."
      case .orderOfKeys: "A task with an order key is handed out after those that came before it."
      case .oneRunnerForKey: "Of the tasks with one order key, only one is held at a time."
      case .waitingTasksAreLast:
        "A task is handed out after those that it waits for, and what follows a batch ends once."
      case .limitsHold: "No more attempts begin within an interval than the limit allows."
      case .everythingEnds: "Once the faults have ended, every task ends within a bound."
      }
    }
  }

  /// What a check takes into account besides the history.
  public struct Expectations: Sendable {
    /// How many attempts may begin within an interval.
    public struct StartLimit: Sendable {
      /// The greatest number of attempts.
      public var count: Int
      /// The length of the interval.
      public var interval: Duration
      /// The names of the tasks that the limit concerns; `nil` for all.
      public var names: Set<String>?

      /// Makes a limit.
      public init(_ count: Int, per interval: Duration, names: Set<String>? = nil) {
        self.count = count
        self.interval = interval
        self.names = names
      }
    }

    /// The limits that the queues have (``Promise/limitsHold``).
    public var limits: [StartLimit]
    /// Within what time after ``HistoryRecorder/recordEndOfFaults()`` everything ends; `nil` if
    /// that is not checked.
    ///
    /// Allow for leases that run out, and for the delays before retries.
    public var endsWithin: Duration?
    /// How far the recorders' clocks, and the store's own, may differ; by default not at all.
    ///
    /// Claims that run out too early by less than this are not found. Lines of two files are
    /// ordered by their dates all the same: keep the clocks of several machines in step.
    public var clockTolerance: Duration

    /// Makes expectations.
    public init(
      limits: [StartLimit] = [],
      endsWithin: Duration? = nil,
      clockTolerance: Duration = .zero
    ) {
      self.limits = limits
      self.endsWithin = endsWithin
      self.clockTolerance = clockTolerance
    }
  }
}
