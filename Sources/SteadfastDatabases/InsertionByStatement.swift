package import SteadfastQueue

extension UniquePolicy {
  /// The policy as a statement that inserts a task names it.
  package var storedName: String {
    switch self {
    case .keep: "keep"
    case .replace: "replace"
    case .reject: "reject"
    case .join: "join"
    // A policy that this version does not know is refused by the database.
    @unknown default: "unknown"
    }
  }
}

extension TaskRecord {
  /// Why no statement can add the task; `nil` if one can.
  package var objectionToStatement: String? {
    guard state != .waiting || dependencies.follower != nil else { return nil }
    return "a statement adds a task that waits, and that is in no batch; the task \(id) is "
      + "\(state), or has a follower"
  }
}
