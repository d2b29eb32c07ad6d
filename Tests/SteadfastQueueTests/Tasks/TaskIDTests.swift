import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct TaskIDTests {
  @Test func `an ID is a version 7 UUID`() throws {
    var generator = TaskIDGenerator(.seeded(1))
    let id = generator.next(at: .seconds(1_700_000_000.123))
    let uuid = try #require(UUID(uuidString: id.description))
    #expect(uuid.uuidString.lowercased() == id.description)
    #expect(id.description.hasPrefix("018bcfe5-687b-7000-"))
    #expect(["8", "9", "a", "b"].contains(id.description.dropFirst(19).first))
  }

  @Test func `the string of an ID can be read again, in upper or lower case`() throws {
    var generator = TaskIDGenerator(.system)
    for _ in 0..<100 {
      let id = generator.next(at: Date())
      #expect(TaskID(id.description) == id)
      #expect(TaskID(id.description.uppercased()) == id)
      let data = try JSONEncoder().encode([id])
      #expect(try JSONDecoder().decode([TaskID].self, from: data) == [id])
    }
  }

  @Test(arguments: [
    "", "x", "018bcfe5687b70008000000000000000", "018bcfe5-687b-7000-8000-00000000000",
    "018bcfe5-687b-7000-8000-00000000000g", "018bcfe5_687b-7000-8000-000000000000",
    "018bcfe5-687b-7000-8000-0000000000000",
  ])
  func `any other string is not an ID`(text: String) {
    #expect(TaskID(text) == nil)
    #expect(throws: DecodingError.self) {
      try JSONDecoder().decode([TaskID].self, from: JSONEncoder().encode([text]))
    }
  }

  @Test func `IDs sort in the order of their creation, even if the clock goes back`() {
    var generator = TaskIDGenerator(.seeded(3))
    var last = generator.next(at: .seconds(1000))
    for number in 0..<20_000 {
      let id = generator.next(at: .seconds(number % 3 == 0 ? 999 : 1000))
      #expect(last < id)
      last = id
    }
  }

  @Test(arguments: [-1e18, -1, 0, 1e18, .nan])
  func `IDs are in order at any date, and can be read again`(seconds: Double) {
    var generator = TaskIDGenerator(.seeded(3))
    let first = generator.next(at: .seconds(seconds))
    let second = generator.next(at: .seconds(seconds))
    #expect(first < second)
    #expect(TaskID(first.description) == first && TaskID(second.description) == second)
  }

  @Test func `a dictionary with IDs as keys is encoded as a JSON object`() throws {
    let id = try #require(TaskID("01020304-0506-0708-090a-0b0c0d0e0f10"))
    let json = try JSONEncoder().encode([id: 1])
    #expect(String(decoding: json, as: UTF8.self) == #"{"01020304-0506-0708-090a-0b0c0d0e0f10":1}"#)
    #expect(try JSONDecoder().decode([TaskID: Int].self, from: json) == [id: 1])
    #expect(throws: DecodingError.self) {
      try JSONDecoder().decode([TaskID: Int].self, from: Data(#"{"1":1}"#.utf8))
    }
  }
}
