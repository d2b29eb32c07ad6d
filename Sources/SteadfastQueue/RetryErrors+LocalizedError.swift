public import SteadfastRetry
public import SystemFoundation

// These conformances are here, because SteadfastRetry does not use Foundation.

extension TimeoutError: LocalizedError {
  /// What happened, and what to do about it; the text of `localizedDescription`.
  public var errorDescription: String? { description }
}

extension NotYet: LocalizedError {
  /// What was there instead of the awaited result; the text of `localizedDescription`.
  public var errorDescription: String? { description }
}
