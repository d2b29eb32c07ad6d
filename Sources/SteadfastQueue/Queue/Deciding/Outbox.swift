/// What ended attempts, until the store has kept it: a value.
struct Outbox: Sendable {
  private let capacity: Int
  /// What has gathered.
  private var waiting: [Settlement] = []
  /// What the finisher has taken.
  private var settling: [Settlement] = []
  /// A worker waits for room.
  private var isHeldBack = false

  init(capacity: Int) { self.capacity = capacity }

  /// Whether nothing is still to be kept.
  var isEmpty: Bool { settling.isEmpty && waiting.isEmpty }

  /// All that is still to be kept, what was taken first.
  var all: [Settlement] { settling + waiting }

  /// Whether what ended an attempt at the task has not been taken.
  func isWaiting(_ id: TaskID) -> Bool { waiting.contains { $0.record.id == id } }

  /// Whether what ended an attempt at the task is still to be kept.
  func contains(_ id: TaskID) -> Bool {
    isWaiting(id) || settling.contains { $0.record.id == id }
  }

  /// Whether a worker may go on that will add another one; else it waits.
  mutating func letsGoOn() -> Bool {
    guard waiting.count >= capacity else { return true }
    isHeldBack = true
    return false
  }

  /// Adds what ended an attempt.
  ///
  /// Whether to wake the finisher.
  mutating func add(_ settlement: Settlement) -> Bool {
    waiting.append(settlement)
    return settling.isEmpty
  }

  /// The finisher takes what has gathered; `nil` if nothing has, or somebody else has taken
  /// something: who then takes the rest.
  mutating func take() -> [Settlement]? {
    guard settling.isEmpty, !waiting.isEmpty else { return nil }
    settling = waiting
    waiting.removeAll(keepingCapacity: true)
    return settling
  }

  /// What was taken is kept, or was put back.
  ///
  /// Returns the former, and whether a worker waited for that.
  mutating func settled() -> (settlements: [Settlement], wakesWorkers: Bool) {
    defer {
      settling = []
      isHeldBack = false
    }
    return (settling, isHeldBack)
  }

  /// What was taken could not be kept, and goes back.
  mutating func putBack(_ settlements: [Settlement]) {
    // What somebody else has taken meanwhile is still being kept.
    let leases = Set(settlements.map(\.change.lease))
    settling.removeAll { leases.contains($0.change.lease) }
    waiting = settlements.map(\.inDoubt) + waiting
  }
}
