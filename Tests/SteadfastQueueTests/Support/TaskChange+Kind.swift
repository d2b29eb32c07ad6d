@testable import SteadfastQueue

extension [TaskChange] {
  /// Whether one of the changes is made by the function or the case with this name.
  func contains(_ name: String) -> Bool { contains { $0.name.hasPrefix(name) } }
}

extension TaskChange {
  /// The name of the function or the case that makes the change, which may be followed by its
  /// arguments.
  fileprivate var name: String {
    switch self {
    case .move(_, let move): move.kind.rawValue
    case .end(_, let end):
      switch end.outcome {
      case .succeeded: "succeed"
      case .abandoned: "abandon"
      case .cancelled: "cancel"
      }
    case .memory(let change): "\(change)"
    case .broad(let change): "\(change)"
    case .insert, .update, .remove, .extend, .command, .setValue: "\(self)"
    }
  }
}
