/// The settlements that are not stored yet.
///
/// What gathers is stored as one batch. So no settlement sets a value: a value that differs would
/// leave the settlements of other attempts unstored, too.
struct Outbox: Sendable {
  private let capacity: Int
  /// The settlements that have gathered since the last ones were taken.
  private var waiting: [Settlement] = []
  /// The settlements that were taken, and are being stored.
  private var settling: [Settlement] = []
  /// Whether a worker waits for room.
  private var isHeldBack = false

  init(capacity: Int) { self.capacity = capacity }

  /// Whether there is nothing left to store.
  var isEmpty: Bool { settling.isEmpty && waiting.isEmpty }

  /// Whether a caller is storing settlements.
  var isStoring: Bool { !settling.isEmpty }

  /// All settlements that are not stored yet, beginning with those that were taken.
  var all: [Settlement] { settling + waiting }

  /// Returns whether a settlement of the task waits to be taken.
  func isWaiting(_ id: TaskID) -> Bool { waiting.contains { $0.record.id == id } }

  /// Returns whether a settlement of the task is not stored yet.
  func contains(_ id: TaskID) -> Bool {
    isWaiting(id) || settling.contains { $0.record.id == id }
  }

  /// Returns whether there is room for another settlement.
  ///
  /// If not, the worker waits.
  mutating func letsGoOn() -> Bool {
    guard waiting.count >= capacity else { return true }
    isHeldBack = true
    return false
  }

  /// Returns whether there is nothing left to store.
  ///
  /// If not, the worker waits.
  mutating func isSettled() -> Bool {
    if !isEmpty { isHeldBack = true }
    return isEmpty
  }

  /// Adds a settlement.
  ///
  /// - Returns: Whether to wake the finisher.
  mutating func add(_ settlement: Settlement) -> Bool {
    waiting.append(settlement)
    return settling.isEmpty
  }

  /// Takes the settlements that have gathered.
  ///
  /// - Returns: The settlements; `nil` if there are none, or if another caller is still storing
  ///   some. That caller then takes the rest.
  mutating func take() -> [Settlement]? {
    guard settling.isEmpty, !waiting.isEmpty else { return nil }
    settling = waiting
    waiting.removeAll(keepingCapacity: true)
    return settling
  }

  /// Ends the storing of the settlements that were taken: they are stored, or back in the outbox.
  ///
  /// - Returns: The settlements that are stored, and whether a worker waited for room.
  mutating func settled() -> (settlements: [Settlement], wakesWorkers: Bool) {
    defer {
      settling = []
      isHeldBack = false
    }
    return (settling, isHeldBack)
  }

  /// Returns settlements to the outbox that could not be stored.
  mutating func putBack(_ settlements: [Settlement]) {
    // Settlements that another caller has taken are still being stored.
    let leases = Set(settlements.map(\.change.lease))
    settling.removeAll { leases.contains($0.change.lease) }
    waiting = settlements.map(\.inDoubt) + waiting
  }
}
