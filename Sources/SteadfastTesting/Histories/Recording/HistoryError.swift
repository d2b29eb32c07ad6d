#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A history that can't be written or read.
public struct HistoryError: Error, Sendable, CustomStringConvertible {
  /// What is wrong, with the file, and what to do.
  public let description: String

  init(_ description: String) { self.description = description }
}

extension HistoryError: LocalizedError {
  /// What is wrong.
  public var errorDescription: String? { description }
}
