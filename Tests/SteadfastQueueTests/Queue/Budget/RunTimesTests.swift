import Testing

@testable import SteadfastQueue

@Suite struct RunTimesTests {
  @Test func `times are unchanged after they are written and read`() throws {
    var times = RunTimes()
    for seconds in [1, 2, 3, 4] { times.add(.seconds(seconds), of: "a") }
    times.add(.milliseconds(1), of: "é\"")
    #expect(RunTimes(try times.bytes()) == times)
    #expect(times.average(of: "a") == .seconds(3))
    #expect(times.average(of: "b") == nil)
  }

  @Test(arguments: ["", "[]", "{\"a\":1}", "{\"a\":[]}", "{\"a\":[\"x\"]}"])
  func `invalid bytes are read as an empty list of times`(text: String) {
    #expect(RunTimes(Array(text.utf8)).average(of: "a") == nil)
  }

  @Test func `names that don't fit the size limit are left out`() throws {
    var times = RunTimes()
    for index in 8..<12 { times.add(.seconds(1), of: "name \(index)") }
    let full = try times.bytes().count
    let read = RunTimes(try times.bytes(limit: full - 1))
    #expect(read.names.count(where: { _ in true }) == 3 && read.average(of: "name 11") == nil)
  }
}
