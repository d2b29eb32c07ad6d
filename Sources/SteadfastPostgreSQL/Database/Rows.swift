#if PostgreSQL
import SystemPostgreSQL
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The rows that a statement returned, in binary form.
@safe final class Rows {
  private let result: OpaquePointer

  /// Takes the result over, and frees it in the end.
  init(_ result: OpaquePointer) { unsafe self.result = result }

  deinit { unsafe PQclear(result) }

  var count: Int { Int(unsafe PQntuples(result)) }

  /// How many rows the statement has changed or returned.
  var changedCount: Int { unsafe Int(String(cString: PQcmdTuples(result))) ?? 0 }

  /// The kind of the result.
  var status: ExecStatusType { unsafe PQresultStatus(result) }

  /// What the server says about the failure of the statement; `nil` if it has not failed.
  var failureIfAny: PostgreSQLFailure? {
    [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(status) ? nil : failure
  }

  /// What the server says about the failure of the statement.
  var failure: PostgreSQLFailure {
    let field = Int32(UInt8(ascii: "C"))
    let state = unsafe PQresultErrorField(result, field).map { unsafe String(cString: $0) }
    return PostgreSQLFailure(
      state: state ?? "",
      text: unsafe String(cString: PQresultErrorMessage(result))
    )
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

  /// The whole number in a column of any width; 0 if it is null.
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

  /// The ID in a column; `nil` if it is null.
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

  /// The texts of an array of one dimension, without nulls; none if it is empty or null.
  ///
  /// - Throws: An ``UnreadableRow`` if the array has other bytes than the server sends.
  func texts(_ column: Int32) throws -> [String] {
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
#endif
