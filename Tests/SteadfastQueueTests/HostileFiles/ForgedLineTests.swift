import Foundation
import Testing

@testable import SteadfastQueue

/// Reads single lines that have correct checksums, but that the library never writes.
@Suite struct ForgedLineTests {
  private static let largest = "9223372036854775807"
  private static let id = TaskID.numbered(1).description

  @Test(arguments: [
    "\"limit\":[0,0]", "\"limit\":[-1,0]", "\"limit\":[\(largest),0]", "\"limit\":[1]",
    "\"limit\":[1,0,0]", "\"limit\":[1,0}", "\"limit\":[+1,0]", "\"limit\":[\(largest)0,0]",
    "\"retries\":-1", "\"retries\":\(largest)0", "\"retries\":1e3", "\"retries\":007",
    "\"retries\":+1", "\"retries\":1.0", "\"retries\":0x1", "\"retries\":\"1\"",
    "\"interruptions\":-1", "\"interruptions\":null",
    "\"failed\":1e999", "\"failed\":-1e999", "\"failed\":nan", "\"failed\":inf",
    "\"failed\":0x1p3", "\"failed\":1.", "\"failed\":.5", "\"failed\":1e", "\"failed\":\"1\"",
    "\"failed\":0000.5", "\"failed\":1\(String(repeating: "0", count: 64))",
    "\"backoff\":true", "\"keyless\":false", "\"keyless\":1",
    "\"tags\":[\"a\",]", "\"tags\":[,]", "\"tags\":\"a\"", "\"tags\":[1]", "\"tags\":[\"a\"",
    "\"state\":\"running\"", "\"state\":\"dead\"", "\"key\":\"\\ud800\"", "\"key\":\"\\u0080\"",
    "\"key\":\"\u{1}\"", "\"schema\":\"1\"", "\"name\":\"B\"", "\"data\":\"\",\"data\":\"\"",
  ])
  func `a field with an invalid value is refused, in a new task and in a compacted one`(
    field: String
  ) {
    for body in [ForgedFile.insertion(1, ",\(field)"), ForgedFile.task(1, place: 1, ",\(field)")] {
      // Only a compacted task has this field.
      if field.hasPrefix("\"keyless\""), body.contains("insert") { continue }
      expectDamage(ForgedFile.bytes([body]), line: 2)
    }
  }

  @Test(arguments: [
    "{}", "{\"\":\"a\"}", "{\"a\":\"b\",}", "{,}", "{\"a\":1}", "{\"a\":null}", "{\"a\"}",
    "{\"a\":\"b\"", "[\"a\"]", "\"a\"", "{\"a\":\"b\",\"a\":\"c\"}",
    "{\"\u{e9}\":\"b\",\"e\u{301}\":\"b\"}", "{\"a\":\"\\u0000\"}", "{\"a\":\"\\ud800\"}",
    "{\"a\":\"\(String(repeating: "x", count: 4_096))\"}",
    "{\((1...65).map { "\"\($0)\":\"\"" }.joined(separator: ","))}",
  ])
  func `invalid metadata is refused, in a new task and in a compacted one`(metadata: String) {
    let field = ",\"metadata\":\(metadata)"
    for body in Self.bodiesWithMetadata(field) { expectDamage(ForgedFile.bytes([body]), line: 2) }
  }

  private static func bodiesWithMetadata(_ field: String) -> [String] {
    [
      ForgedFile.insertion(1, field).replacing("\"k\":\"insert\"", with: "\"k\":\"create\""),
      ForgedFile.task(1, place: 1, field).replacing("\"k\":\"task\"", with: "\"k\":\"stored\""),
    ]
  }

  @Test func `only lines of certain kinds have metadata, and all of these have it`() throws {
    let field = ",\"metadata\":{\"a\":\"b\"}"
    for body in Self.bodiesWithMetadata(field) {
      let table = try JournalReader.read(ForgedFile.bytes([body])).table
      #expect(table.record(of: .numbered(1))?.metadata == ["a": "b"])
    }
    for body in Self.bodiesWithMetadata("") { expectDamage(ForgedFile.bytes([body]), line: 2) }
    for body in [ForgedFile.insertion(1, field), ForgedFile.task(1, place: 1, field)] {
      expectDamage(ForgedFile.bytes([body]), line: 2)
    }
    let update = "\"k\":\"update\",\"id\":\"\(TaskID.numbered(1))\""
    let edit = update.replacing("update", with: "edit")
    for body in [update + field + "}", edit + ",\"priority\":1}"] {
      expectDamage(ForgedFile.bytes([ForgedFile.insertion(1), body]), line: 3)
    }
    let bytes = ForgedFile.bytes([ForgedFile.insertion(1), edit + field + "}"])
    #expect(
      try JournalReader.read(bytes).table.record(of: .numbered(1))?.metadata == ["a": "b"]
    )
  }

  @Test(arguments: [
    "\"id\":1\(TaskID.numbered(2))1", "\"id\":[\(TaskID.numbered(2))]", "\"id\":\"\"",
    "\"id\":\"\(TaskID.numbered(2))0\"",
  ])
  func `an ID that isn't a valid string is refused`(field: String) {
    expectDamage(ForgedFile.bytes([ForgedFile.insertion(1), "\"k\":\"begin\",\(field)}"]), line: 3)
  }

  @Test(arguments: [
    #""version":0,"generation":1"#, #""version":-1,"generation":1"#,
    #""version":1,"generation":0"#, #""version":1,"generation":-5"#,
    #""version":1.0,"generation":1"#,
  ])
  func `a header without a valid version and generation is refused`(fields: String) {
    let line = ForgedFile.line(
      #"","b":0,"s":0,"k":"header","format":"steadfast-queue",\#(fields)}"#
    )
    expectDamage(line, line: 1)
  }

  @Test func `counts at the end of their range are read, and don't overflow`() throws {
    let bytes = ForgedFile.bytes([
      ForgedFile.insertion(1, ",\"interruptions\":\(Self.largest),\"retries\":\(Self.largest)"),
      ForgedFile.begin(1), ForgedFile.begin(1),
    ])
    let record = try #require(try JournalReader.read(bytes).table.record(of: .numbered(1)))
    #expect(record.interruptionCount == .max)
    #expect(record.nextRetryCount == .max)
  }

  @Test func `a file whose generation is at the end of its range can be compacted`() throws {
    let header = #""k":"header","format":"steadfast-queue","version":1"#
    let storage = MemoryStorage(
      ForgedFile.line(#"","b":0,"s":0,\#(header),"generation":\#(Self.largest)}"#)
    )
    let (journal, table) = try Journal.open(storage)
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    guard case .finished = try compaction.advance(journal, at: .seconds(0)) else {
      Issue.record("compacting a file without tasks should need only one step")
      return
    }
    #expect(try JournalReader.read(storage.bytes).generation == .max)
  }

  @Test func `rebasing dates whose difference overflows leaves a date that can be stored`()
    throws
  {
    let table = try JournalReader.read(
      ForgedFile.bytes([
        ForgedFile.insertion(1, ",\"failed\":1.7e308").replacing(
          "\"available\":0.0",
          with: "\"available\":-1.7e308"
        ),
        "\"k\":\"rebase\",\"at\":0.0}",
      ])
    ).table
    #expect(table.brokenInvariants() == [])
    #expect(table.record(of: .numbered(1))?.failedDate == .seconds(0))
  }

  @Test func `a compacted task whose line comes after the line of a change is refused`() {
    let bytes = ForgedFile.bytes([
      ForgedFile.task(1, place: 1), ForgedFile.begin(1), ForgedFile.task(2, place: 2),
      "\"k\":\"unpark\",\"name\":\"A\"}", ForgedFile.task(3, place: 3),
    ])
    expectDamage(bytes, line: 6)
  }

  @Test(arguments: [
    "18446744073709551615", "9223372036854775807", "-1", "1.0", "01", "1e1", "\"1\"",
  ])
  func `a task's place number that is invalid or too large is refused`(place: String) {
    let body = ForgedFile.task(1, place: 7).replacing("\"place\":7", with: "\"place\":\(place)")
    expectDamage(ForgedFile.bytes([body]), line: 2)
  }

  @Test(arguments: [
    "\"b\":18446744073709551615,\"s\":1", "\"b\":0,\"s\":18446744073709551615",
    "\"b\":0,\"s\":18446744073709551616", "\"b\":2,\"s\":1", "\"b\":0,\"s\":2", "\"b\":-1,\"s\":1",
  ])
  func `a line that is out of order is never accepted`(numbers: String) throws {
    let line = ForgedFile.line(#"",\#(numbers),\#(ForgedFile.insertion(1))"#)
    do {
      let contents = try JournalReader.read(ForgedFile.bytes([]) + line)
      #expect(contents.nextSequence == 1)
    } catch {
      guard case .damaged(line: 2, _, _) = error else {
        Issue.record("\(error)")
        return
      }
    }
  }

  @Test func `an error message doesn't repeat a huge kind or field`() {
    let kind = String(repeating: "k", count: 1 << 20)
    let bytes = ForgedFile.bytes([#""k":"\#(kind)"}"#])
    expectDamage(bytes, line: 2)
    expectDamage(ForgedFile.bytes([#""k":"seal","\#(kind)":1,"\#(kind)":1}"#]), line: 2)
  }

  @Test func `a string that looks like an escape, or must be escaped, is read as it was written`()
    throws
  {
    for text in ["\u{0}", "\u{1f}", "\\u0041", "\"", "\\", "\u{7f}", "é", "\u{2028}", "👩‍👩‍👧", "\r\n"] {
      let record = TaskRecord(
        id: .numbered(1),
        name: text,
        payload: StoredPayload([], format: .binary),
        createdDate: .seconds(0),
        uniqueKey: text,
        tags: [text, ""],
        metadata: text == "\0" ? [:] : [text: text],
        availableDate: .seconds(0)
      )
      let body = try JournalBody(.change(.insert(record, onDuplicate: .keep)))
      let table = try JournalReader.read(
        ForgedFile.bytes([String(decoding: body.bytes, as: UTF8.self)])
      ).table
      let found = try #require(table.record(of: .numbered(1)))
      #expect(found.name.utf8.elementsEqual(text.utf8))
      #expect(found.uniqueKey?.utf8.elementsEqual(text.utf8) == true)
      #expect(found.tags == [text, ""])
      #expect(found.metadata.isEmpty || found.metadata.containsExactly([text: text]))
    }
  }

  private func expectDamage(
    _ bytes: [UInt8],
    line expected: Int,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    #expect(sourceLocation: sourceLocation) {
      try JournalReader.read(bytes)
    } throws: { error in
      guard case .damaged(let line, _, let reason)? = error as? JournalProblem else { return false }
      return line == expected && reason.utf8.count < 200
    }
  }
}
