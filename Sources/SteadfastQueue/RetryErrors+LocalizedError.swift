public import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

// Here, because SteadfastRetry does without Foundation.

extension TimeoutError: LocalizedError {
  /// What happened, and what to do about it: what `localizedDescription` says.
  public var errorDescription: String? { description }
}

extension NotYet: LocalizedError {
  /// What was there instead of the awaited result: what `localizedDescription` says.
  public var errorDescription: String? { description }
}
