/// What most tasks do without: it takes one word as long as it is empty.
struct Rare<Value: RareValue>: Sendable {
  private final class Box: Sendable {
    let value: Value

    init(_ value: Value) { self.value = value }
  }

  private var box: Box?

  init(_ value: Value) { self.value = value }

  var isEmpty: Bool { box == nil }

  var value: Value {
    get { box?.value ?? Value() }
    set { box = newValue.isEmpty ? nil : Box(newValue) }
  }

  /// The value, unless it is empty: to read a part of it without making an empty one for that.
  var present: Value? {
    @inline(__always) get { box?.value }
  }
}

extension Rare: Equatable where Value: Equatable {
  static func == (left: Rare, right: Rare) -> Bool {
    left.box === right.box || left.value == right.value
  }
}

/// What ``Rare`` keeps.
protocol RareValue: Sendable {
  /// Makes an empty one.
  init()
  /// Whether it is as an empty one.
  var isEmpty: Bool { get }
}
