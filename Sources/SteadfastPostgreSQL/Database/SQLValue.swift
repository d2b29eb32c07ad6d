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

  /// The seconds after 1970 from which PostgreSQL counts dates: those of the year 2000.
  private static let epoch = 946_684_800.0

  /// The microseconds since 2000 of the first date that PostgreSQL has, in the year 4714 BC.
  private static let earliest = -211_813_488_000_000_000.0
  /// Those of the first date that it does not have, in the year 294277.
  private static let end = 9_223_371_331_200_000_000.0

  /// Whole microseconds since 2000.
  ///
  /// A date that PostgreSQL does not have becomes `-infinity` or `infinity`, so that it stands
  /// before or after all that are stored. One that is not a number stands before them, as in
  /// Swift's ranges.
  static func microseconds(of date: Date) -> Int64 {
    let count = ((date.timeIntervalSince1970 - epoch) * 1e6).rounded()
    guard count >= earliest else { return .min }
    return count < end ? Int64(count) : .max
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
      // A statement with more bytes than that is not sent.
      var length = Int32(clamping: count)
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
