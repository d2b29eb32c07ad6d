public import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The error for a completion that brings no value.
///
/// It is remembered, so each later attempt meets it. If the handler lets it through, the task is
/// abandoned.
public struct CompletionFailed: RetryAwareError, CustomStringConvertible {
  /// The name of the completion.
  public let name: String
  /// The text of the error that it was completed with; `nil` if it has timed out.
  public let reason: String?

  /// Whether no completion came in time.
  public var hasTimedOut: Bool { reason == nil }
  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// As in `the completion 'upload' has timed out`.
  public var description: String {
    reason.map { "the completion '\(name)' has failed: \($0)" }
      ?? "the completion '\(name)' has timed out"
  }
}

extension CompletionFailed: LocalizedError {
  /// What has failed, and why.
  public var errorDescription: String? { description }
}

/// How a wait was completed, as it is stored.
enum CompletionOutcome {
  private enum Key: CodingKey { case value, error, timedOut }

  /// A completion with a value.
  struct Value<Wrapped: Encodable>: Encodable {
    let value: Wrapped
  }

  /// A completion without a value.
  struct Failure: Encodable {
    var error: String?
    var timedOut: Bool?
  }

  /// What a completion brings.
  struct Brought<Wrapped: Decodable>: Decodable {
    let result: Result<Wrapped, Missing>

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Key.self)
      if let reason = try container.decodeIfPresent(String.self, forKey: .error) {
        result = .failure(Missing(reason: reason))
      } else if try container.decodeIfPresent(Bool.self, forKey: .timedOut) == true {
        result = .failure(Missing(reason: nil))
      } else {
        result = .success(try container.decode(Wrapped.self, forKey: .value))
      }
    }
  }

  /// Why there is no value; the reason is `nil` if the completion has timed out.
  struct Missing: Error {
    let reason: String?
  }
}

/// The token and the deadline of a wait, as they are stored.
struct OpenCompletion: Codable, Sendable {
  /// The random part of the token.
  let secret: String
  /// When the wait ends; `nil` if it has no end.
  var deadline: WaitEnd?
}
