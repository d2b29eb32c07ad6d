/// A payload that is not what its handler's type wants.
///
/// It names what is missing, never the payload itself.
struct UndecodablePayload: Error, CustomStringConvertible {
  let description: String

  init(description: String) { self.description = description }

  init(name: String, type: String, _ error: any Error) {
    let problem =
      switch error {
      case DecodingError.keyNotFound(let key, let context):
        "the key '\(Self.path(context.codingPath + [key]))' is missing"
      case DecodingError.typeMismatch(let type, let context):
        "'\(Self.path(context.codingPath))' is not a \(type)"
      case DecodingError.valueNotFound(let type, let context):
        "'\(Self.path(context.codingPath))' is null, not a \(type)"
      case DecodingError.dataCorrupted(let context):
        "'\(Self.path(context.codingPath))' can't be read"
      default:
        "\(Swift.type(of: error)) was thrown"
      }
    description = "the payload of '\(name)' can't be decoded as \(type): \(problem)"
  }

  private static func path(_ keys: [any CodingKey]) -> String {
    keys.isEmpty ? "the payload" : keys.map(\.stringValue).joined(separator: ".")
  }
}
