import SteadfastQueue

extension [TaskChange] {
  /// Whether one of the changes is of this kind.
  func contains(_ kind: String) -> Bool { contains { "\($0)".hasPrefix(kind) } }
}
