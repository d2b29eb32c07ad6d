#if PostgreSQL
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A parameter of a statement, in the binary form of its type.
enum SQLValue: Sendable {
  case null
  /// A `bigint`.
  case integer(Int64)
  case text(String)
  /// A `bytea`.
  case bytes([UInt8])
  /// A `boolean`.
  case flag(Bool)
  /// A `uuid`.
  case id(TaskID)
  /// A `timestamptz`.
  case date(Date)
  /// An array whose elements have one type.
  case array([SQLValue], of: ElementType)

  /// The type of an array's elements, by the number that each server has for it.
  enum ElementType: UInt32, Sendable {
    case flag = 16
    case bytes = 17
    case integer = 20
    case text = 25
    case date = 1184
    case id = 2950
  }
}

extension SQLValue {
  static func integer(_ value: Int) -> SQLValue { .integer(Int64(value)) }
  static func integer(_ value: Int?) -> SQLValue { value.map { .integer(Int64($0)) } ?? .null }
  static func text(_ value: String?) -> SQLValue { value.map { .text($0) } ?? .null }
  static func id(_ value: TaskID?) -> SQLValue { value.map { .id($0) } ?? .null }
  static func date(_ value: Date?) -> SQLValue { value.map { .date($0) } ?? .null }

  /// The microseconds, of which a positive duration has at least one.
  static func duration(_ value: Duration?) -> SQLValue {
    value.map { .integer($0.microseconds) } ?? .null
  }

  /// The number of retries; null if there is no limit.
  static func limit(_ limit: RetryLimit?) -> SQLValue {
    if case .atMost(let count) = limit { .integer(Int64(count)) } else { .null }
  }

  static func token(_ value: UInt64) -> SQLValue { .integer(Int64(bitPattern: value)) }

  static func ids(_ ids: some Sequence<TaskID>) -> SQLValue {
    .array(ids.map { .id($0) }, of: .id)
  }

  static func texts(_ texts: some Sequence<String>) -> SQLValue {
    .array(texts.map { .text($0) }, of: .text)
  }

  // MARK: Bytes

  /// The bytes before which PostgreSQL counts dates: the year 2000.
  private static let epoch = 946_684_800.0

  /// Whole microseconds since 2000.
  static func microseconds(of date: Date) -> Int64 {
    Int64(((date.timeIntervalSince1970 - epoch) * 1e6).rounded())
  }

  static func date(ofMicroseconds count: Int64) -> Date {
    Date(timeIntervalSince1970: epoch + Double(count) / 1e6)
  }

  /// Adds the value's bytes.
  ///
  /// - Returns: How many there are; `nil` for null.
  func append(to bytes: inout [UInt8]) -> Int? {
    let start = bytes.count
    switch self {
    case .null: return nil
    case .integer(let value): bytes.appendInteger(value)
    case .text(let text): bytes += text.utf8
    case .bytes(let value): bytes += value
    case .flag(let value): bytes.append(value ? 1 : 0)
    case .id(let id):
      bytes.appendInteger(id.high)
      bytes.appendInteger(id.low)
    case .date(let date): bytes.appendInteger(Self.microseconds(of: date))
    case .array(let elements, let type): Self.append(elements, type, to: &bytes)
    }
    return bytes.count - start
  }

  /// Adds an array: dimensions, whether there is a null, the type, the length and the first index.
  private static func append(
    _ elements: [SQLValue],
    _ type: ElementType,
    to bytes: inout [UInt8]
  ) {
    bytes.appendInteger(Int32(elements.isEmpty ? 0 : 1))
    bytes.appendInteger(Int32(1))
    bytes.appendInteger(type.rawValue)
    guard !elements.isEmpty else { return }
    bytes.appendInteger(Int32(elements.count))
    bytes.appendInteger(Int32(1))
    for element in elements {
      let start = bytes.count
      bytes.appendInteger(Int32(-1))
      guard let count = element.append(to: &bytes) else { continue }
      var length = Int32(count)
      for offset in (0..<4).reversed() {
        bytes[start + offset] = UInt8(truncatingIfNeeded: length)
        length >>= 8
      }
    }
  }
}

extension [UInt8] {
  /// Adds the bytes of a number, the highest first.
  fileprivate mutating func appendInteger(_ value: some FixedWidthInteger) {
    var shift = value.bitWidth
    while shift > 0 {
      shift -= 8
      append(UInt8(truncatingIfNeeded: value >> shift))
    }
  }
}
#endif
