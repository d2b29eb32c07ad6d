/// The names under which a queue has a task remember.
///
/// The kind comes first, so that a step and a sleep of the same name don't meet.
enum MemoryName {
  static let checkpoint = "checkpoint"

  /// The name for the value of a step.
  static func step(_ name: String) -> String { "step:\(name)" }
  /// The name for the intent to begin a step that is not repeated.
  static func intent(_ name: String) -> String { "intent:\(name)" }
  /// The name for the date of a sleep.
  static func sleep(_ name: String) -> String { "sleep:\(name)" }
  /// The name for the token and the deadline of a completion.
  static func completion(_ name: String) -> String { completionPrefix + name }
  /// The name that says that the token of a completion was handed out.
  static func handedOut(_ name: String) -> String { "opened:\(name)" }
  /// The name for the outcome of a completion, which is open until it comes.
  static func outcome(_ token: TaskToken) -> String { outcomePrefix + token.secretText }

  static let completionPrefix = "completion:"
  static let outcomePrefix = "outcome:"
}
