/// The latest events for a slow observer, and the number of events that were dropped for them.
///
/// It holds no event that was dropped or delivered, and takes no more room than its capacity.
struct EventBuffer: Sendable {
  /// The events, in a ring: the first one is at `head`, and place 0 follows the last place.
  private var places: [TaskEvent?] = []
  private var head = 0
  private var count = 0
  private var missedCount = 0
  private let capacity: Int

  var isEmpty: Bool { count == 0 }
  /// The number of events that it has room for now.
  var placeCount: Int { places.count }

  init(capacity: Int) { self.capacity = max(1, capacity) }

  mutating func append(_ event: TaskEvent) {
    if count == capacity {
      missedCount += 1
      places[head] = event
      head = place(1)
      return
    }
    if count == places.count {
      // After this, there is room behind the last place.
      places = Array(places[head...] + places[..<head])
      head = 0
      places.append(event)
    } else {
      places[place(count)] = event
    }
    count += 1
  }

  mutating func popFirst() -> TaskEvent? {
    if missedCount > 0 {
      defer { missedCount = 0 }
      return .missed(count: missedCount)
    }
    guard count > 0, let event = places[head] else { return nil }
    places[head] = nil
    head = place(1)
    count -= 1
    return event
  }

  /// Returns the place that is `offset` places behind the head.
  private func place(_ offset: Int) -> Int {
    let index = head + offset
    return index < places.count ? index : index - places.count
  }
}
