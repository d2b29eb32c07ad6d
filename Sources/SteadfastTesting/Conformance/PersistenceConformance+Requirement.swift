extension PersistenceConformance {
  /// A requirement that every store must meet.
  public struct Requirement: Sendable, Identifiable, CustomStringConvertible {
    /// The kind of store that can be checked for the requirement.
    enum Condition: Sendable {
      case any, oneClock, shared, reopened, reopenedByOneQueue
      /// The store is shared, and the check can move its clock.
      case sharedWithClock
      /// So can it, and all queues have that clock.
      case sharedWithOneClock
    }

    /// A topic and a short name, such as `order.priority`.
    public let id: String
    /// What the store must do.
    public let sentence: String
    let condition: Condition
    let check: @Sendable (StoreProbe) async throws -> Void

    init(
      _ id: String,
      _ sentence: String,
      _ condition: Condition = .any,
      check: @escaping @Sendable (StoreProbe) async throws -> Void
    ) {
      self.id = id
      self.sentence = sentence
      self.condition = condition
      self.check = check
    }

    /// The identifier and the sentence.
    public var description: String { "\(id): \(sentence)" }

    /// All requirements, in the order in which they are checked.
    public static let all: [Requirement] =
      order + claims + ends + leases + control + ended + batches + form + uniqueKeys + successors
      + expiredTwins
      + orderKeys + conditions + waiting + endsAlong + restartsAlong + removalsAlong
      + waitingInStores + queues + values + valuesInStores + memory + forgetting + suspension
      + suspensionAndOthers + completion + memoryInStores + lookUps + records + life + reopening
      + sharing
      + concurrency
      + model
  }
}

extension PersistenceConformance.Requirement.Condition {
  /// Returns why a store is not checked; `nil` if it is checked.
  func reasonToSkip(
    reopens: Bool,
    isShared: Bool,
    hasOneClock: Bool,
    movesClock: Bool
  ) -> String? {
    let notReopened = "the closure that makes stores takes no place to open again"
    let notShared = "the store's sharing is nil"
    let notAlone = "several queues share the store"
    let notOne = "the queues on the store have several clocks"
    let notMoved = "the check has no closure that moves the store's clock"
    return switch self {
    case .any: nil
    case .oneClock: hasOneClock ? nil : notOne
    case .shared: !reopens ? notReopened : isShared ? nil : notShared
    case .sharedWithClock:
      !reopens ? notReopened : !isShared ? notShared : movesClock ? nil : notMoved
    case .sharedWithOneClock:
      hasOneClock
        ? Self.sharedWithClock.reasonToSkip(
          reopens: reopens,
          isShared: isShared,
          hasOneClock: hasOneClock,
          movesClock: movesClock
        ) : notOne
    case .reopened: reopens ? nil : notReopened
    case .reopenedByOneQueue: !reopens ? notReopened : isShared ? notAlone : nil
    }
  }
}
