@testable import SteadfastQueue

/// Lines with arbitrary text and correct checksums, as any program that knows the format can write.
enum ForgedFile {
  /// A file of a header and these bodies.
  ///
  /// The lines are numbered, and none marks another as durable.
  static func bytes(_ bodies: [String]) -> [UInt8] {
    let header = #""k":"header","format":"steadfast-queue","version":1,"generation":1}"#
    return ([header] + bodies).enumerated().flatMap { number, body in
      line(#"","b":\#(min(number, 1)),"s":\#(number),\#(body)"#)
    }
  }

  /// A line with this text after its checksum.
  static func line(_ rest: String) -> [UInt8] { line(Array(rest.utf8)) }

  static func line(_ rest: [UInt8]) -> [UInt8] {
    let sum = CRC32C.checksum(rest[...])
    let digits = (0..<8).map { Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32($0)))) }
    return Array(#"{"c":""#.utf8) + digits + rest + [0x0A]
  }

  /// The body of an insertion of a task with a number and additional fields.
  static func insertion(_ number: Int, _ fields: String = "") -> String {
    task("insert", number, fields)
  }

  /// Like `insertion(_:_:)`, for a task that a compaction has written.
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
