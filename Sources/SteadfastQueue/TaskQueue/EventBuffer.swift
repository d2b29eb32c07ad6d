/// Events that wait for a slow observer: the latest so many, and how many were dropped for them.
struct EventBuffer: Sendable {
  private var events: [TaskEvent] = []
  private var head = 0
  private var missedCount = 0
  private let capacity: Int

  var isEmpty: Bool { head == events.count }

  init(capacity: Int) { self.capacity = max(1, capacity) }

  mutating func append(_ event: TaskEvent) {
    if events.count - head == capacity {
      head += 1
      missedCount += 1
    }
    events.append(event)
    if head > capacity {
      events.removeFirst(head)
      head = 0
    }
  }

  mutating func popFirst() -> TaskEvent? {
    if missedCount > 0 {
      defer { missedCount = 0 }
      return .missed(count: missedCount)
    }
    guard head < events.count else { return nil }
    let event = events[head]
    head += 1
    if head == events.count {
      events.removeAll(keepingCapacity: true)
      head = 0
    }
    return event
  }
}
