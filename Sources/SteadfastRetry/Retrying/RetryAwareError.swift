/// An error that knows whether trying again can help.
///
/// `withRetry` asks it unless the caller decides with `shouldRetry`; a task queue asks it of
/// whatever a handler throws.
public protocol RetryAwareError: Error {
  /// What to do about the attempt that threw this error.
  var retryDecision: RetryDecision { get }
}
