/// What completes a task's wait: a secret that the task hands out, and gets back with a value.
///
/// Its text is safe in a URL, and holds 128 random bits, so that no other caller can complete
/// the wait than one that was given it. See ``TaskContext/completion(_:of:within:_:)``.
public struct TaskToken: Sendable, Hashable {
  /// The task that waits.
  public let taskID: TaskID
  private let high: UInt64
  private let low: UInt64

  init(taskID: TaskID, high: UInt64, low: UInt64) {
    self.taskID = taskID
    self.high = high
    self.low = low
  }

  private static var secretLength: Int { 32 }

  /// The random part of the token: 32 hexadecimal digits.
  var secretText: String {
    Hexadecimal.text(high, digits: 16) + Hexadecimal.text(low, digits: 16)
  }

  /// Makes the token of a task from its random part.
  init?(taskID: TaskID, secret: some StringProtocol) {
    guard secret.utf8.count == Self.secretLength,
      secret.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }),
      let high = UInt64(secret.prefix(16), radix: 16),
      let low = UInt64(secret.suffix(16), radix: 16)
    else { return nil }
    self.taskID = taskID
    self.high = high
    self.low = low
  }
}

extension TaskToken: LosslessStringConvertible {
  /// The task's ID, a full stop, and 32 hexadecimal digits, all in lower case: 69 characters.
  public var description: String { "\(taskID).\(secretText)" }

  /// Reads the text of a token; `nil` if it is anything else.
  public init?(_ description: String) {
    let parts = description.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, let id = TaskID(String(parts[0])), id.description == parts[0] else {
      return nil
    }
    self.init(taskID: id, secret: parts[1])
  }
}

extension TaskToken: Codable {
  /// Reads the token's text.
  ///
  /// - Throws: A `DecodingError` if it is not one.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let token = TaskToken(text) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "it is not a token")
    }
    self = token
  }

  /// Writes the token's text.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}
