package import SteadfastQueue
package import SystemFoundation

/// A parameter of a statement.
package enum SQLValue: Sendable {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case bytes([UInt8])
  case flag(Bool)
  case id(TaskID)
  case date(Date)
  /// An array whose elements have one type.
  case array([SQLValue], of: ElementType)

  package enum ElementType: Sendable {
    case flag, bytes, integer, text, date, id
  }
}

extension SQLValue {
  package static func integer(_ value: Int) -> SQLValue { .integer(Int64(value)) }
  package static func integer(_ value: Int?) -> SQLValue {
    value.map { .integer(Int64($0)) } ?? .null
  }
  package static func text(_ value: String?) -> SQLValue { value.map { .text($0) } ?? .null }
  package static func flag(_ value: Bool?) -> SQLValue { value.map { .flag($0) } ?? .null }
  package static func id(_ value: TaskID?) -> SQLValue { value.map { .id($0) } ?? .null }
  package static func date(_ value: Date?) -> SQLValue { value.map { .date($0) } ?? .null }

  /// The microseconds; at least one for a positive duration.
  package static func duration(_ value: Duration?) -> SQLValue {
    value.map { .integer($0.microseconds) } ?? .null
  }

  /// The number of retries; null if there is no limit.
  package static func limit(_ limit: RetryLimit?) -> SQLValue {
    if case .atMost(let count) = limit { .integer(Int64(count)) } else { .null }
  }

  package static func token(_ value: UInt64) -> SQLValue { .integer(Int64(bitPattern: value)) }

  package static func ids(_ ids: some Sequence<TaskID>) -> SQLValue {
    .array(ids.map { .id($0) }, of: .id)
  }

  package static func texts(_ texts: some Sequence<String>) -> SQLValue {
    .array(texts.map { .text($0) }, of: .text)
  }
}
