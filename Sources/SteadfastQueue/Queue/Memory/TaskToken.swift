#if canImport(Darwin)
public import Foundation
#endif

/// The secret that completes a task's wait.
///
/// The task passes the token on, and a caller completes the wait with the token and a value. The
/// token's text is safe in a URL. It contains 128 random bits, so that only callers that have
/// received the token can complete the wait. See ``TaskContext/completion(_:of:within:_:)``.
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

  /// Parses the text of a token; `nil` if it is not a token.
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
  /// - Throws: A `DecodingError` if the text is not a token.
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

#if canImport(Darwin)
/// A bridge to transfers that the system continues while the app does not run.
///
/// It is compiled for Apple's platforms only, and was not run.
extension URLSessionTask {
  /// The token of the wait that the transfer completes.
  ///
  /// It is stored in `taskDescription`, which the system preserves for later launches. Set it
  /// before the transfer is resumed.
  public var taskToken: TaskToken? {
    get { taskDescription.flatMap { TaskToken($0) } }
    set { taskDescription = newValue?.description }
  }
}

extension TaskQueue {
  /// Completes waits with an error if the system no longer has the transfers that they wait for.
  ///
  /// Call it after a launch, when the session's delegate has been notified of all transfers that
  /// have ended. Each wait that it completes throws a ``CompletionFailed`` in its handler. The call
  /// skips a token that was not passed on yet, because the next attempt passes it on.
  ///
  /// - Parameters:
  ///   - session: the background session with the transfers.
  ///   - name: the name of the completions for which the task started the transfers.
  /// - Returns: the number of lost transfers.
  /// - Throws: what ``pendingCompletions()`` and ``complete(_:failing:)`` throw.
  @discardableResult
  public nonisolated func completeLostTransfers(
    of session: URLSession,
    named name: String
  ) async throws -> Int {
    try await core.opened.completeLostTransfers(named: name) {
      Set(await session.allTasks.compactMap(\.taskToken))
    }
  }
}
#endif
