#if SQLite
import SystemSQLite
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A prepared statement, and the row at which it is.
@safe final class Statement: TaskRow {
  private let handle: OpaquePointer

  init(_ handle: OpaquePointer) { unsafe self.handle = handle }

  deinit { unsafe sqlite3_finalize(handle) }

  /// Whether it writes nothing to the database itself.
  var isReadOnly: Bool { unsafe sqlite3_stmt_readonly(handle) != 0 }

  /// Sets the parameters, from the first one on.
  ///
  /// - Returns: The result code.
  func bind(_ values: [SQLValue]) -> Int32 {
    var code = SQLITE_OK
    for (offset, value) in values.enumerated() where code == SQLITE_OK {
      code = bind(value, Int32(offset + 1))
    }
    return code
  }

  private func bind(_ value: SQLValue, _ index: Int32) -> Int32 {
    switch value {
    case .null: return unsafe sqlite3_bind_null(handle, index)
    case .integer(let value): return unsafe sqlite3_bind_int64(handle, index, value)
    case .real(let value): return unsafe sqlite3_bind_double(handle, index, value)
    case .text(var text):
      return text.withUTF8 { bytes in
        guard let count = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
        return unsafe bytes.withMemoryRebound(to: CChar.self) { characters in
          // A text without bytes may have no address, and must not become null.
          guard let base = characters.baseAddress else {
            return unsafe steadfast_bind_text(handle, index, "", 0)
          }
          return unsafe steadfast_bind_text(handle, index, base, count)
        }
      }
    case .blob(let bytes):
      guard let count = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
      guard count > 0 else { return unsafe sqlite3_bind_zeroblob(handle, index, 0) }
      return unsafe bytes.withUnsafeBytes { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, count)
      }
    case .id(let id):
      return unsafe withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, 16)
      }
    }
  }

  /// Goes on to the next row.
  ///
  /// - Returns: The result code.
  func step() -> Int32 { unsafe sqlite3_step(handle) }

  /// Makes the statement ready for other parameters, and forgets those that it had.
  func reset() {
    unsafe sqlite3_reset(handle)
    unsafe sqlite3_clear_bindings(handle)
  }

  // MARK: The row

  func isNull(_ column: Int32) -> Bool {
    unsafe sqlite3_column_type(handle, column) == SQLITE_NULL
  }

  func int64(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(handle, column) }

  func integer(_ column: Int32) -> Int { Int(clamping: int64(column)) }

  func flag(_ column: Int32) -> Bool { integer(column) != 0 }

  func text(_ column: Int32) -> String {
    guard let base = unsafe sqlite3_column_text(handle, column) else { return "" }
    let count = Int(unsafe sqlite3_column_bytes(handle, column))
    let bytes = unsafe UnsafeBufferPointer(start: base, count: count)
    return unsafe String(decoding: bytes, as: UTF8.self)
  }

  func bytes(_ column: Int32) -> [UInt8] {
    guard let base = unsafe sqlite3_column_blob(handle, column) else { return [] }
    let count = Int(unsafe sqlite3_column_bytes(handle, column))
    return unsafe Array(UnsafeRawBufferPointer(start: base, count: count))
  }

  /// The ID in a column; `nil` if it is null.
  func id(_ column: Int32) -> TaskID? {
    guard let base = unsafe sqlite3_column_blob(handle, column),
      unsafe sqlite3_column_bytes(handle, column) == 16
    else { return nil }
    return unsafe TaskID(
      high: UInt64(bigEndian: base.loadUnaligned(as: UInt64.self)),
      low: UInt64(bigEndian: base.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    )
  }

  func date(_ column: Int32) -> Date {
    Date(timeIntervalSince1970: unsafe sqlite3_column_double(handle, column))
  }

  func real(_ column: Int32) -> Double { unsafe sqlite3_column_double(handle, column) }
}
#endif
