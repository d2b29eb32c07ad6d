#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemPostgreSQL
import SystemFoundation

/// The rows that a statement returned, in binary form.
@safe final class Rows {
  private let result: OpaquePointer

  /// Takes ownership of a result, and frees it on deinitialization.
  init(_ result: OpaquePointer) { unsafe self.result = result }

  deinit { unsafe PQclear(result) }

  var count: Int { Int(unsafe PQntuples(result)) }

  /// The number of rows that the statement changed or returned.
  var changedCount: Int { unsafe Int(String(cString: PQcmdTuples(result))) ?? 0 }

  var status: ExecStatusType { unsafe PQresultStatus(result) }

  /// The server's error for the statement; `nil` if the statement succeeded.
  var failureIfAny: PostgreSQLFailure? {
    [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(status) ? nil : failure
  }

  /// The server's error for the statement, which failed.
  var failure: PostgreSQLFailure {
    PostgreSQLFailure(
      state: errorField("C"),
      text: unsafe String(cString: PQresultErrorMessage(result)),
      constraint: errorField("n")
    )
  }

  /// Returns a field of the server's error; empty if the error doesn't have the field.
  private func errorField(_ code: Unicode.Scalar) -> String {
    unsafe PQresultErrorField(result, Int32(code.value)).map { unsafe String(cString: $0) } ?? ""
  }

  subscript(row: Int) -> Row { Row(rows: self, number: Int32(row)) }

  fileprivate func isNull(_ row: Int32, _ column: Int32) -> Bool {
    unsafe PQgetisnull(result, row, column) != 0
  }

  fileprivate func withBytes<Value>(
    _ row: Int32,
    _ column: Int32,
    _ read: (UnsafeRawBufferPointer) throws -> Value
  ) rethrows -> Value {
    let start = unsafe PQgetvalue(result, row, column)
    let count = Int(unsafe PQgetlength(result, row, column))
    return unsafe try read(UnsafeRawBufferPointer(start: start, count: count))
  }
}

/// One row.
struct Row: TaskRow {
  fileprivate let rows: Rows
  fileprivate let number: Int32

  func isNull(_ column: Int32) -> Bool { rows.isNull(number, column) }

  /// The integer in a column of any width; 0 if the column is null.
  func int64(_ column: Int32) -> Int64 {
    unsafe rows.withBytes(number, column) { bytes in
      let isNegative = unsafe (bytes.first ?? 0) & 0x80 != 0
      return unsafe bytes.reduce(isNegative ? -1 : 0) { $0 << 8 | Int64($1) }
    }
  }

  func integer(_ column: Int32) -> Int { Int(clamping: int64(column)) }

  func flag(_ column: Int32) -> Bool {
    unsafe rows.withBytes(number, column) { unsafe $0.first == 1 }
  }

  func text(_ column: Int32) -> String {
    unsafe rows.withBytes(number, column) { unsafe String(decoding: $0, as: UTF8.self) }
  }

  func bytes(_ column: Int32) -> [UInt8] {
    unsafe rows.withBytes(number, column) { unsafe Array($0) }
  }

  /// The ID in a column; `nil` if the column is null.
  func id(_ column: Int32) -> TaskID? {
    unsafe rows.withBytes(number, column) { bytes in
      guard bytes.count == 16 else { return nil }
      return unsafe TaskID(
        high: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
        low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      )
    }
  }

  func date(_ column: Int32) -> Date { SQLValue.date(ofMicroseconds: int64(column)) }

  /// The strings of a one-dimensional array without nulls; empty if the column is empty or null.
  ///
  /// - Throws: An ``UnreadableRow`` if the array's bytes are not in the server's format.
  func strings(_ column: Int32) throws -> [String] {
    unsafe try rows.withBytes(number, column) { bytes in
      func number(_ offset: Int) throws(UnreadableRow) -> Int {
        guard offset >= 0, offset + 4 <= bytes.count else {
          throw UnreadableRow(column: "tags or conditions")
        }
        let value = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: Int32.self)
        return Int(Int32(bigEndian: value))
      }
      guard bytes.count > 0, try number(0) == 1 else { return [] }
      var offset = 20
      return try (0..<number(12)).map { _ in
        let start = offset + 4
        let end = start + (try number(offset))
        guard end >= start, end <= bytes.count else {
          throw UnreadableRow(column: "tags or conditions")
        }
        offset = end
        return unsafe String(decoding: bytes[start..<end], as: UTF8.self)
      }
    }
  }
}

/// The binary forms of parameters.
extension SQLValue {
  /// The start of the year 2000, from which PostgreSQL counts dates, in seconds since 1970.
  private static let epoch = 946_684_800.0

  /// The earliest date that PostgreSQL supports, in 4714 BC, in microseconds since 2000.
  private static let earliest = -211_813_488_000_000_000.0
  /// The end of the dates that PostgreSQL supports, in the year 294277, in microseconds since 2000.
  private static let end = 9_223_371_331_200_000_000.0

  /// Returns the whole microseconds since 2000.
  ///
  /// A date that PostgreSQL does not support becomes `-infinity` or `infinity`, and so comes before
  /// or after all stored dates. A date that is not a number comes before all stored dates, as in
  /// Swift's ranges.
  static func microseconds(of date: Date) -> Int64 {
    let count = ((date.timeIntervalSince1970 - epoch) * 1e6).rounded()
    guard count >= earliest else { return .min }
    return count < end ? Int64(count) : .max
  }

  static func date(ofMicroseconds count: Int64) -> Date {
    Date(timeIntervalSince1970: epoch + Double(count) / 1e6)
  }

  /// Appends the value in binary form.
  ///
  /// - Returns: The number of appended bytes; `nil` for null.
  func append(to bytes: inout [UInt8]) -> Int? {
    let start = bytes.count
    switch self {
    case .null: return nil
    case .integer(let value): bytes.appendInteger(value)
    case .real(let value): bytes.appendInteger(value.bitPattern)
    case .text(let text): bytes += text.utf8
    case .bytes(let value): bytes += value
    case .flag(let value): bytes.append(value ? 1 : 0)
    case .id(let id):
      bytes.appendInteger(id.high)
      bytes.appendInteger(id.low)
    case .date(let date): bytes.appendInteger(Self.microseconds(of: date))
    case .array(let elements, let type): Self.appendArray(elements, of: type, to: &bytes)
    }
    return bytes.count - start
  }

  /// Appends an array: the number of dimensions, whether there are nulls, the type of the elements,
  /// their number, the first index, and then each element.
  private static func appendArray(
    _ elements: [SQLValue],
    of type: ElementType,
    to bytes: inout [UInt8]
  ) {
    bytes.appendInteger(Int32(elements.isEmpty ? 0 : 1))
    bytes.appendInteger(Int32(1))
    bytes.appendInteger(type.number)
    guard !elements.isEmpty else { return }
    bytes.appendInteger(Int32(elements.count))
    bytes.appendInteger(Int32(1))
    for element in elements {
      let start = bytes.count
      bytes.appendInteger(Int32(-1))
      guard let count = element.append(to: &bytes) else { continue }
      // Clamping is harmless: a statement with that many bytes is not sent.
      var length = Int32(clamping: count)
      for offset in (0..<4).reversed() {
        bytes[start + offset] = UInt8(truncatingIfNeeded: length)
        length >>= 8
      }
    }
  }
}

extension SQLValue.ElementType {
  /// The number that all servers use for the type.
  fileprivate var number: UInt32 {
    switch self {
    case .flag: 16
    case .bytes: 17
    case .integer: 20
    case .text: 25
    case .date: 1184
    case .id: 2950
    }
  }
}

extension [UInt8] {
  /// Appends the bytes of a number in big-endian order.
  fileprivate mutating func appendInteger(_ value: some FixedWidthInteger) {
    var shift = value.bitWidth
    while shift > 0 {
      shift -= 8
      append(UInt8(truncatingIfNeeded: value >> shift))
    }
  }
}

extension String {
  /// Returns a copy of the string with a mark before each of the given Unicode scalars, as in
  /// quoted SQL.
  ///
  /// A scalar matches even if it forms one `Character` with a combining character after it.
  func escaping(_ scalars: Set<Unicode.Scalar>, with mark: Unicode.Scalar) -> String {
    var marked = String.UnicodeScalarView()
    for scalar in unicodeScalars {
      if scalars.contains(scalar) { marked.append(mark) }
      marked.append(scalar)
    }
    return String(marked)
  }
}
#endif
