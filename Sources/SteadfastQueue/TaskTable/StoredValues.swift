/// The values that a store holds under names, and those that staged changes set.
///
/// Changes of one name are committed in the order in which they were staged, and rolled back in the
/// reverse order. So a change is compared with what the last staged one sets: if that one can't be
/// written, neither can this one.
struct StoredValues: Sendable {
  struct Value: Sendable, Equatable {
    var bytes: [UInt8]
    /// About how many bytes a file takes for the value.
    var byteCount = 0
  }

  /// The values that are stored.
  private(set) var packed: Set<PackedValue> = []
  /// What staged changes set, in the order of staging; `nil` for the removal of a value.
  private(set) var staged: [ExactText: [Value?]] = [:]
  /// About how many bytes a file takes for all values.
  private(set) var byteCount = 0

  /// How many values are stored.
  var count: Int { packed.count }

  /// The bytes that are stored under a name.
  subscript(name: String) -> [UInt8]? { committed(name)?.bytes }

  private func committed(_ name: String) -> Value? {
    packed.firstIndex(of: PackedValue(named: name)).map { packed[$0].value }
  }

  /// Stages a change, if the bytes under its name are these when all staged changes are stored.
  ///
  /// - Returns: Whether they are.
  mutating func stage(_ name: String, from old: [UInt8]?, to new: [UInt8]?) -> Bool {
    let present =
      if let last = staged[ExactText(name)]?.last { last } else { committed(name) }
    guard present?.bytes == old else { return false }
    staged[ExactText(name), default: []].append(new.map { Value(bytes: $0) })
    return true
  }

  /// Notes how many bytes a file takes for what the last staged change of a name sets.
  mutating func setByteCount(_ count: Int, ofLastStaged name: String) {
    guard let last = staged[ExactText(name)]?.indices.last else { return }
    staged[ExactText(name)]?[last]?.byteCount = count
  }

  /// Stores what the first staged change of a name sets.
  mutating func commit(_ name: String) {
    guard let value = takeStaged(name, { $0.removeFirst() }) else {
      preconditionFailure("a change of a value was committed that was not staged")
    }
    set(name, to: value)
  }

  /// Undoes the last staged change of a name.
  mutating func rollBack(_ name: String) { _ = takeStaged(name) { $0.removeLast() } }

  private mutating func takeStaged(
    _ name: String,
    _ take: (inout [Value?]) -> Value?
  ) -> Value?? {
    guard var changes = staged.removeValue(forKey: ExactText(name)) else { return nil }
    let value = take(&changes)
    if !changes.isEmpty { staged[ExactText(name)] = changes }
    return .some(value)
  }

  /// Stores a value, whatever it was before.
  mutating func set(_ name: String, to value: Value?) {
    byteCount += value?.byteCount ?? 0
    let old =
      if let value {
        packed.update(with: PackedValue(name, value))
      } else {
        packed.remove(PackedValue(named: name))
      }
    byteCount -= old?.value.byteCount ?? 0
  }
}
