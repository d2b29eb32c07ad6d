import Testing

@testable import SteadfastQueue

@Suite struct JournalFieldsTests {
  private func kindAndFields(ofBody body: String) throws -> (JournalKind, JournalFields) {
    let bytes = Array(body.utf8)
    var fields = JournalFields(bytes)
    return (try fields.readFields(in: bytes.indices), fields)
  }

  private func escapingEachCharacter(of text: String) -> String {
    text.utf8.map { "\\u00" + ($0 < 0x10 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  @Test(arguments: JournalField.allCases)
  func `a field is recognized by its exact name only`(field: JournalField) throws {
    for name in [field.jsonName, escapingEachCharacter(of: field.jsonName)] {
      let (_, fields) = try kindAndFields(ofBody: #""k":"seal","\#(name)":7}"#)
      for other in JournalField.allCases { #expect(fields.has(other) == (other == field)) }
      #expect(try fields.integer(of: field) == 7)
    }
    for name in [
      "\(field.jsonName)s", "x\(field.jsonName)", String(field.jsonName.dropLast()) + "é",
    ] {
      let (_, fields) = try kindAndFields(ofBody: #""k":"seal","\#(name)":7}"#)
      let known = JournalField.allCases.filter { $0.jsonName == name }
      #expect(JournalField.allCases.filter { fields.has($0) } == known)
    }
  }

  @Test(arguments: JournalKind.allCases)
  func `a kind is recognized by its exact name`(kind: JournalKind) throws {
    for name in [kind.rawValue, escapingEachCharacter(of: kind.rawValue)] {
      #expect(try kindAndFields(ofBody: #""k":"\#(name)"}"#).0 == kind)
    }
    #expect(throws: JournalDecodingError.unknownKind("\(kind.rawValue)x")) {
      try kindAndFields(ofBody: #""k":"\#(kind.rawValue)x"}"#)
    }
  }

  @Test(arguments: ["id", "generation", "unheard", "a name of more than sixteen bytes"])
  func `a duplicate field is refused, with escapes or without`(name: String) throws {
    for other in [name, escapingEachCharacter(of: name)] {
      #expect(throws: JournalDecodingError.malformed("it has the field '\(name)' twice")) {
        try kindAndFields(ofBody: #""k":"seal","\#(name)":1,"\#(other)":1}"#)
      }
    }
  }

  @Test func `the fields of a line are cleared before the next line is read`() throws {
    let lines = [#""k":"seal","id":1,"x":1}"#, #""k":"begin","name":2,"x":1}"#]
    let bytes = Array(lines.joined().utf8)
    let end = lines[0].utf8.count
    var fields = JournalFields(bytes)
    #expect(try fields.readFields(in: 0..<end) == .seal)
    #expect(try fields.readFields(in: end..<bytes.count) == .begin)
    #expect(!fields.has(.id))
    #expect(try fields.integer(of: .name) == 2)
  }

  @Test func `known and unknown fields are counted together`() throws {
    func line(_ count: Int) -> String {
      let names = JournalField.allCases.map(\.jsonName) + (0..<count).map { "x\($0)" }
      return #""k":"seal""# + names.prefix(count).map { ",\"\($0)\":0" }.joined() + "}"
    }
    #expect(try kindAndFields(ofBody: line(64)).0 == .seal)
    #expect(throws: JournalDecodingError.malformed("it has too many fields")) {
      try kindAndFields(ofBody: line(65))
    }
  }
}
