#if SQLite
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A parameter of a statement.
enum SQLValue {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([UInt8])
  case id(TaskID)
}

extension SQLValue {
  static func integer(_ value: Int?) -> SQLValue { value.map { .integer(Int64($0)) } ?? .null }
  static func text(_ value: String?) -> SQLValue { value.map { .text($0) } ?? .null }
  static func id(_ value: TaskID?) -> SQLValue { value.map { .id($0) } ?? .null }
  static func flag(_ value: Bool) -> SQLValue { .integer(value ? Int64(1) : 0) }

  /// The seconds since 1970.
  ///
  /// A date that is not a number stands before all others, as in Swift's ranges; SQLite would take
  /// it for null.
  static func date(_ value: Date?) -> SQLValue {
    guard let seconds = value?.timeIntervalSince1970 else { return .null }
    return .real(seconds.isNaN ? -.infinity : seconds)
  }

  /// The microseconds, of which a positive duration has at least one.
  static func duration(_ value: Duration?) -> SQLValue {
    value.map { .integer($0.microseconds) } ?? .null
  }

  /// The number of retries; null if there is no limit.
  static func limit(_ limit: RetryLimit?) -> SQLValue {
    if case .atMost(let count) = limit { .integer(Int64(count)) } else { .null }
  }

  static func token(_ value: UInt64) -> SQLValue { .integer(Int64(bitPattern: value)) }
}
#endif
