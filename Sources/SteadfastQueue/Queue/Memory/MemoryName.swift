/// The names under which a queue has a task remember.
///
/// The kind comes first, so that a step and a sleep of the same name don't meet.
enum MemoryName {
  static let checkpoint = "checkpoint"

  /// The name for the value of a step.
  static func step(_ name: String) -> String { stepPrefix + name }
  /// The name for the intent to begin a step that is not repeated.
  static func intent(_ name: String) -> String { "intent:\(name)" }
  /// The name for the date of a sleep.
  static func sleep(_ name: String) -> String { "sleep:\(name)" }
  /// The name for the token and the deadline of a completion.
  static func completion(_ name: String) -> String { completionPrefix + name }
  /// The name that says that the token of a completion was handed out.
  static func handedOut(_ name: String) -> String { "opened:\(name)" }
  /// The name for the outcome of a completion, which is open until it comes.
  static func outcome(_ token: TaskToken) -> String { "outcome:\(token.secretText)" }

  static let stepPrefix = "step:"
  static let completionPrefix = "completion:"

  /// What a task remembers under the name of an intent.
  static let begun = Array("true".utf8)

  /// Returns what follows a prefix in a name; `nil` if the name does not begin with it.
  ///
  /// Both are compared by their bytes: the first character of what follows may combine with the
  /// end of the prefix.
  static func name(in stored: String, after prefix: String) -> String? {
    guard stored.utf8.starts(with: prefix.utf8) else { return nil }
    return String(stored.unicodeScalars.dropFirst(prefix.unicodeScalars.count))
  }
}
