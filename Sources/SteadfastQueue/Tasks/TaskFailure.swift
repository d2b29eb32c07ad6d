#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Why an attempt failed, and when.
public struct TaskFailure: Sendable, Hashable {
  /// The text of the error.
  public let reason: String
  /// When the attempt ended.
  public let date: Date

  /// Makes a failure.
  public init(reason: String, date: Date) {
    self.reason = reason
    self.date = date
  }
}
