#if canImport(Darwin)
public import Foundation
#endif

/// The secret with which a caller provides the value that a task waits for.
///
/// A handler gets the token from ``TaskContext/completion(_:of:within:_:)``, and passes it on. Then
/// ``TaskQueue/complete(_:with:)`` is called with the token and a value. Without the token, no
/// caller can provide the value, because the token contains 128 random bits. Its ``description`` is
/// safe in a URL.
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

  /// Makes a task's token from ``secretText``; `nil` if `secret` isn't 32 hexadecimal digits.
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

  /// Makes a token from its ``description``; `nil` if the string isn't that of a token.
  public init?(_ description: String) {
    let parts = description.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 2, let id = TaskID(String(parts[0])), id.description == parts[0] else {
      return nil
    }
    self.init(taskID: id, secret: parts[1])
  }
}

extension TaskToken: Codable {
  /// Reads the token's ``description``.
  ///
  /// - Throws: a `DecodingError` if the string isn't that of a token.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let token = TaskToken(text) else {
      throw DecodingError.dataCorruptedError(
        in: container,
        debugDescription: "the string is not the description of a TaskToken"
      )
    }
    self = token
  }

  /// Writes the token's ``description``.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}

#if canImport(Darwin)
// This code is compiled for Apple's platforms only, and was never run.
extension URLSessionTask {
  /// The token of the completion that this background transfer provides.
  ///
  /// The token is stored in `taskDescription`, which the system preserves for later launches. Set
  /// this property before you resume the transfer.
  public var taskToken: TaskToken? {
    get { taskDescription.flatMap { TaskToken($0) } }
    set { taskDescription = newValue?.description }
  }
}

extension TaskQueue {
  /// Makes tasks fail that wait for background transfers that the system no longer has.
  ///
  /// Call this method after a launch, when the session's delegate has been notified of all
  /// transfers that have ended. For each lost transfer, ``TaskContext/completion(_:of:within:_:)``
  /// throws a ``CompletionFailed`` in the task's handler. If a task has not started its transfer
  /// yet, the task is skipped: its next attempt starts the transfer.
  ///
  /// - Parameters:
  ///   - session: the background session with the transfers.
  ///   - name: the name that the handlers pass to ``TaskContext/completion(_:of:within:_:)`` for
  ///     these transfers.
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
