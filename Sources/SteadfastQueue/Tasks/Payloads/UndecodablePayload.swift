/// An error for a payload that does not fit its handler's type.
///
/// It names what is missing, and never shows the payload. Of a path, it shows only the keys that
/// the program has declared, not those of a dictionary.
struct UndecodablePayload: Error, CustomStringConvertible {
  let description: String

  init(description: String) { self.description = description }

  init(name: String, type: String, _ error: any Error) {
    let problem =
      switch error {
      case DecodingError.keyNotFound(let key, let context):
        "the key \((context.codingPath + [key]).shownPath) is missing"
      case DecodingError.typeMismatch(let type, let context):
        "\(context.codingPath.shownPath) is not of type \(type)"
      case DecodingError.valueNotFound(let type, let context):
        "\(context.codingPath.shownPath) is null instead of a value of type \(type)"
      case DecodingError.dataCorrupted(let context):
        "\(context.codingPath.shownPath) can't be read"
      default:
        "\(Swift.type(of: error)) was thrown"
      }
    description = "the payload of '\(name)' can't be decoded as \(type): \(problem)"
  }
}

extension [any CodingKey] {
  /// The path as an error shows it: of its keys only those that the program has declared.
  var shownPath: String {
    if isEmpty { return "it" }
    return "'\(map { Self.isDeclared($0) ? $0.stringValue : "…" }.joined(separator: "."))'"
  }

  /// Returns whether a key is a case that the program has declared.
  ///
  /// The keys of dictionaries and the indices of arrays look alike, but are structures or have
  /// associated values.
  private static func isDeclared(_ key: any CodingKey) -> Bool {
    let mirror = Mirror(reflecting: key)
    return mirror.displayStyle == .enum && mirror.children.isEmpty
  }
}
