/// The latest events for a slow observer, and the number of events that were dropped for them.
///
/// It holds no event that was dropped or delivered.
struct EventBuffer: Sendable {
  private var events = FIFOQueue<TaskEvent>()
  private var missedCount = 0
  private let capacity: Int

  var isEmpty: Bool { events.isEmpty }

  init(capacity: Int) { self.capacity = max(1, capacity) }

  mutating func append(_ event: TaskEvent) {
    if events.count == capacity {
      _ = events.popFirst()
      missedCount += 1
    }
    events.append(event)
  }

  mutating func popFirst() -> TaskEvent? {
    if missedCount > 0 {
      defer { missedCount = 0 }
      return .missed(count: missedCount)
    }
    return events.popFirst()
  }
}
