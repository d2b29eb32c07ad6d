@testable import SteadfastQueue

/// Makes lines with correct checksums and any contents, as another program could write them.
enum ForgedFile {
  /// Makes a file of a header and lines with these bodies.
  ///
  /// The lines are numbered. No line marks another line as durable.
  static func bytes(_ bodies: [String]) -> [UInt8] {
    let header = #""k":"header","format":"steadfast-queue","version":1,"generation":1}"#
    return ([header] + bodies).enumerated().flatMap { number, body in
      line(#"","b":\#(min(number, 1)),"s":\#(number),\#(body)"#)
    }
  }

  /// Makes a line with this text after the checksum.
  static func line(_ rest: String) -> [UInt8] { line(Array(rest.utf8)) }

  static func line(_ rest: [UInt8]) -> [UInt8] {
    let sum = CRC32C.checksum(rest[...])
    let digits = (0..<8).map { Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32($0)))) }
    return Array(#"{"c":""#.utf8) + digits + rest + [0x0A]
  }

  /// The body of a line that inserts a task with additional fields.
  static func insertion(_ number: Int, _ fields: String = "") -> String {
    task("insert", number, fields)
  }

  /// The body of a line with which a compaction writes a task with additional fields.
  static func task(_ number: Int, place: UInt64, _ fields: String = "") -> String {
    task("task", number, fields + #","place":\#(place)"#)
  }

  private static func task(_ kind: String, _ number: Int, _ fields: String) -> String {
    #""k":"\#(kind)","id":"\#(TaskID.numbered(number))","name":"A","priority":0,"created":0.0,"#
      + #""available":0.0,"maxRetries":10,"payload":{}\#(fields)}"#
  }

  static func begin(_ number: Int) -> String {
    #""k":"begin","id":"\#(TaskID.numbered(number))"}"#
  }
}
