/// Pauses of limits.
extension RateLimits {
  /// Returns the places that are paused when a task says that it has met a limit: those of a key,
  /// else those of its name, else those of all tasks.
  func pausedPlaces(of record: TaskRecord) -> [Place] {
    let places = places(of: record)
    let keyed = places.filter { scopes[$0.scope].key != nil }
    let named = places.filter { scopes[$0.scope].names != nil }
    return keyed.isEmpty ? named.isEmpty ? places : named : keyed
  }

  /// Returns the bytes of a value in which a place is paused.
  func pausing(_ place: Place, _ bytes: [UInt8]?, from now: Int64, until end: Int64) -> [UInt8]? {
    var histories = StartHistories(bytes) ?? usedUp(place.valueName, at: now)
    histories[place.key].pause(from: now, until: end)
    return histories.bytes
  }
}
