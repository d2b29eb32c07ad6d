import Testing

@testable import SteadfastTesting

@Suite struct TurnsTests {
  @Test func `turns are first in, first out, and the caller of a turn runs before the next turn`() {
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

  @Test func `every waiting turn can be removed while another turn is under way`() {
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
