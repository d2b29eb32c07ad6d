#if canImport(Darwin)
public import Foundation
#endif

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

#if canImport(Darwin)
/// A bridge to the transfers that the system goes on with while the app does not run.
///
/// It is compiled for Apple's platforms only, and was not run.
extension URLSessionTask {
  /// The token of the completion that the transfer brings, which `taskDescription` holds.
  ///
  /// Set it before the transfer is resumed. The system gives the description back in later
  /// launches.
  public var taskToken: TaskToken? {
    get { taskDescription.flatMap { TaskToken($0) } }
    set { taskDescription = newValue?.description }
  }
}

extension TaskQueue {
  /// Completes with an error what tasks await from transfers that the system has no longer.
  ///
  /// Call it after a launch, when the session's delegate has been told of all transfers that have
  /// ended. Each wait that it ends throws a ``CompletionFailed`` in its handler. A token that was
  /// not handed out is left alone: the next attempt hands it out.
  ///
  /// - Parameters:
  ///   - session: the background session with the transfers.
  ///   - name: the name of the completions that the transfers bring.
  /// - Returns: how many were lost.
  /// - Throws: what ``pendingCompletions()`` and ``complete(_:failing:)`` throw.
  @discardableResult
  public nonisolated func completeLostTransfers(
    of session: URLSession,
    named name: String
  ) async throws -> Int {
    try await core.completeLostTransfers(named: name) {
      Set(await session.allTasks.compactMap(\.taskToken))
    }
  }
}
#endif
