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
