import Foundation

@testable import SteadfastQueue

extension GoldenWriter {
  private mutating func remember(_ number: Int, _ name: String, _ value: [UInt8]) throws {
    try change(.remember(lease(number), named: name, value: value))
  }

  private func completion(ofTask number: Int, _ name: String, _ value: [UInt8]) -> TaskChange {
    .complete(.numbered(number), named: name, value: value)
  }

  /// Writes steps whose values are text or other bytes, and suspensions and completions in each
  /// order, and then ends, restarts and requests.
  mutating func writeMemory() throws {
    for number in 1...9 { try insert(task(number, available: 5)) }
    try begin(1, 2, 3, 4, 5, 6, 7, 8)
    let escapes = "\"quoted\" \\ /\u{7f} é \u{2028} 👩‍👩‍👧 e\u{301}"
    for (name, value) in [
      ("charge", Array("{\"id\":7}".utf8)), (escapes, Array(escapes.utf8)), ("\n\t\u{1f}", [1, 2]),
      ("bytes", Array(0...255)), ("torn", [0xC3]), ("\u{e9}", [0x31]), ("e\u{301}", [0x32]),
      ("charge", Array("{\"id\":8}".utf8)), ("open", []),
    ] {
      try remember(1, name, value)
    }
    // Several steps of two tasks in one batch.
    try append(
      .change(.remember(lease(2), named: "open", value: [])),
      .change(.remember(lease(2), named: "step", value: [0])),
      .change(.remember(lease(3), named: "open", value: []))
    )
    try change(
      .suspend(lease(1), until: date(600), awaiting: []),
      // A completion before the suspension, and a completion after it.
      completion(ofTask: 2, "open", Array("came".utf8)),
      .suspend(lease(2), until: .distantFuture, awaiting: ["other", "open"]),
      .suspend(lease(3), until: .distantFuture, awaiting: ["open", "\u{1}"]),
      completion(ofTask: 3, "open", [9]),
      // These completions are too late, or their value isn't open.
      completion(ofTask: 3, "open", [8]),
      completion(ofTask: 3, "step", [8]),
      completion(ofTask: 99, "open", [8])
    )
    for number in 4...8 { try remember(number, "open", []) }
    try change(
      .succeed(lease(4), at: date(1), retains: true),
      completion(ofTask: 4, "open", [8]),
      .abandon(lease(5), failure: failure(5), retains: true),
      completion(ofTask: 5, "open", [8]),
      .restart(.claimed(lease(6)), availableDate: date(2), forgets: true),
      .restart(.claimed(lease(7)), availableDate: date(2)),
      completion(ofTask: 7, "open", Array("waits".utf8)),
      .suspend(lease(8), until: date(700), awaiting: [])
    )
    try begin(9)
    try change(.suspend(lease(9), until: date(20), awaiting: ["never"]))
    // A request wakes one suspended task. An attempt begins when the date of another has come.
    try change(
      .pause(.unclaimed(.numbered(8))),
      .update(.numbered(1), TaskUpdate(tags: ["slow"])),
      .rebase(date(-9))
    )
    try begin(9, 1)
    try reopen()
    try begin(9)
    try remember(9, "late", [3])
    try change(.reschedule(.claimed(lease(9)), availableDate: date(30)))
    try reopen(closing: true)
  }

  /// Compacts a file of suspended tasks with memory, and writes changes during and after it.
  mutating func writeCompactedMemory() throws {
    for number in 1...5 { try insert(task(number)) }
    try insert(task(6, key: "k"), task(7, order: "o"))
    try begin(1, 2, 3, 4, 6, 7)
    for (number, name, value) in [
      (1, "b", [0]), (1, "a", Array("text".utf8)), (2, "open", []), (3, "gone", [2]),
      (4, "step", [3]), (6, "step", [4]), (7, "open", []),
    ] {
      try remember(number, name, value)
    }
    try change(
      .suspend(lease(2), until: .distantFuture, awaiting: ["open"]),
      .succeed(lease(3), at: date(1), retains: true),
      .suspend(lease(6), until: date(60), awaiting: []),
      .suspend(lease(7), until: .distantFuture, awaiting: ["open"])
    )
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try remember(1, "during", [5])
    try change(completion(ofTask: 2, "open", Array("came".utf8)))
    journal = try compaction.finish(journal, at: date(6))
    try change(
      .remember(lease(4), named: "step", value: []),
      completion(ofTask: 4, "step", [6]),
      completion(ofTask: 7, "open", [7])
    )
  }
}
