import Testing

@testable import SteadfastTesting

@Suite struct TurnsTests {
  @Test
  func `operations start in order, and the caller of each continues before the next one starts`() {
    var turns = Turns<String>()
    #expect(!turns.hasNext)
    #expect(turns.popNext() == nil)
    turns.append("a")
    turns.append("b")
    #expect(turns.popNext() == "a")
    #expect(turns.isUnderWay)
    #expect(!turns.hasNext)
    #expect(turns.popNext() == nil)
    turns.end("a's caller")
    #expect(!turns.isUnderWay)
    #expect(turns.hasNext)
    #expect(turns.popNext() == "a's caller")
    #expect(turns.popNext() == "b")
    turns.end("b's caller")
    turns.append("c")
    #expect(turns.popNext() == "b's caller")
    #expect(turns.popNext() == "c")
  }

  @Test func `all waiting operations can be removed while another operation runs`() {
    var turns = Turns<String>()
    for work in ["a", "b", "c"] { turns.append(work) }
    #expect(turns.popNext() == "a")
    #expect(turns.popAny() == "b")
    turns.end("a's caller")
    #expect(turns.popAny() == "a's caller")
    #expect(turns.popAny() == "c")
    #expect(turns.popAny() == nil)
  }
}
