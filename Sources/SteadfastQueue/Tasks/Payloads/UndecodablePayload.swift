/// A payload that is not what its handler's type wants.
///
/// It names what is missing, never the payload itself: of a path it tells only the keys that the
/// program has declared, not those of a dictionary.
struct UndecodablePayload: Error, CustomStringConvertible {
  let description: String

  init(description: String) { self.description = description }

  init(name: String, type: String, _ error: any Error) {
    let problem =
      switch error {
      case DecodingError.keyNotFound(let key, let context):
        "the key \(Self.path(context.codingPath + [key])) is missing"
      case DecodingError.typeMismatch(let type, let context):
        "\(Self.path(context.codingPath)) is not of type \(type)"
      case DecodingError.valueNotFound(let type, let context):
        "\(Self.path(context.codingPath)) is null instead of a value of type \(type)"
      case DecodingError.dataCorrupted(let context):
        "\(Self.path(context.codingPath)) can't be read"
      default:
        "\(Swift.type(of: error)) was thrown"
      }
    description = "the payload of '\(name)' can't be decoded as \(type): \(problem)"
  }

  private static func path(_ keys: [any CodingKey]) -> String {
    if keys.isEmpty { return "it" }
    return "'\(keys.map { isDeclared($0) ? $0.stringValue : "…" }.joined(separator: "."))'"
  }

  /// Whether a key is a case of the program's own.
  ///
  /// The keys of dictionaries, and the places in arrays, which look alike, are structures or have
  /// associated values.
  private static func isDeclared(_ key: any CodingKey) -> Bool {
    let mirror = Mirror(reflecting: key)
    return mirror.displayStyle == .enum && mirror.children.isEmpty
  }
}
