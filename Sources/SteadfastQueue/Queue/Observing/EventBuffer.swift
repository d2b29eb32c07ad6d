/// Events that wait for a slow observer: the latest so many, and how many were dropped for them.
///
/// It holds no event that was dropped or delivered, and no more room than its capacity.
struct EventBuffer: Sendable {
  /// The events, the first at the head; behind the last place comes the first one.
  private var places: [TaskEvent?] = []
  private var head = 0
  private var count = 0
  private var missedCount = 0
  private let capacity: Int

  var isEmpty: Bool { count == 0 }
  /// How many events it has room for now.
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
      // From here on there is room behind the last place.
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

  /// The place so many behind the head.
  private func place(_ offset: Int) -> Int {
    let index = head + offset
    return index < places.count ? index : index - places.count
  }
}
