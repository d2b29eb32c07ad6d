#if PostgreSQL
import CPostgreSQL

/// A connection to PostgreSQL that pipelines prepared statements with binary values.
final class RawConnection {
  private let handle: OpaquePointer
  private var names: [String: String] = [:]

  init(_ place: String) throws {
    guard let handle = PQconnectdb(place) else { throw Failed() }
    self.handle = handle
    guard PQstatus(handle) == CONNECTION_OK, PQenterPipelineMode(handle) == 1 else {
      throw Failed()
    }
  }

  deinit { PQfinish(handle) }

  /// Returns the binary form of an array: one dimension, no nulls, the OID of the elements' type,
  /// the number of elements, the first index, and each element with its length.
  static func binaryArray(of elements: [[UInt8]], type: Int32) -> [UInt8] {
    let head = [1, 0, type, Int32(elements.count), 1].flatMap(\.bytes)
    return head + elements.flatMap { Int32($0.count).bytes + $0 }
  }

  /// Runs statements without values, outside of the pipeline.
  func execute(_ script: String) throws {
    guard PQexitPipelineMode(handle) == 1, let result = PQexec(handle, script) else {
      throw Failed()
    }
    defer { PQclear(result) }
    guard PQresultStatus(result) == PGRES_COMMAND_OK, PQenterPipelineMode(handle) == 1 else {
      throw Failed(reason: String(cString: PQerrorMessage(handle)))
    }
  }

  /// Buffers a statement with these binary values.
  func send(_ text: String, _ values: [UInt8]...) throws {
    if names[text] == nil {
      let name = "raw\(names.count)"
      guard PQsendPrepare(handle, name, text, 0, nil) == 1 else { throw Failed() }
      names[text] = name
    }
    let bytes = Array(values.joined()) + [0]
    let lengths = values.map { Int32($0.count) }
    let formats = [Int32](repeating: 1, count: values.count)
    let code = bytes.withUnsafeBytes { buffer in
      var start = 0
      let pointers = lengths.map { length -> UnsafePointer<CChar>? in
        defer { start += Int(length) }
        return buffer.baseAddress?.advanced(by: start).assumingMemoryBound(to: CChar.self)
      }
      let count = Int32(values.count)
      return PQsendQueryPrepared(handle, names[text], count, pointers, lengths, formats, 1)
    }
    guard code == 1 else { throw Failed() }
  }

  /// Runs a statement without values, and returns the whole number in its only row.
  func queryInteger(_ text: String) throws -> Int {
    try send(text)
    guard let bytes = try waitForResults().last?[0, 0] else { throw Failed() }
    return bytes.reduce(0) { $0 << 8 | Int($1) }
  }

  /// Sends the buffered statements to the server.
  func sendBuffered() throws { guard PQpipelineSync(handle) == 1 else { throw Failed() } }

  /// Sends the buffered statements, and waits for the results of all statements.
  @discardableResult
  func waitForResults() throws -> [RawRows] {
    try sendBuffered()
    return try readResults()
  }

  /// Reads the results of the statements that were sent together.
  func readResults() throws -> [RawRows] {
    var found: [RawRows] = []
    while true {
      guard let result = PQgetResult(handle) else { continue }
      let rows = RawRows(result)
      switch PQresultStatus(result) {
      case PGRES_PIPELINE_SYNC: return found
      case PGRES_COMMAND_OK, PGRES_TUPLES_OK: found.append(rows)
      default:
        throw Failed(reason: String(cString: PQresultErrorMessage(result)))
      }
    }
  }
}

/// The rows that a statement returned.
final class RawRows {
  private let result: OpaquePointer

  fileprivate init(_ result: OpaquePointer) { self.result = result }

  deinit { PQclear(result) }

  var count: Int { Int(PQntuples(result)) }
  var columnCount: Int { Int(PQnfields(result)) }

  subscript(row: Int, column: Int) -> [UInt8] {
    let (row, column) = (Int32(row), Int32(column))
    let start = PQgetvalue(result, row, column)
    return Array(
      UnsafeRawBufferPointer(start: start, count: Int(PQgetlength(result, row, column)))
    )
  }
}
#endif
