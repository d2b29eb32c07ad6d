@testable import SteadfastQueue

extension GoldenWriter {
  /// Sets, changes and removes values that are text or other bytes, and also writes tasks.
  mutating func writeValues() throws {
    let escapes = "\"quoted\" \\ /\u{7f} é \u{2028} 👩‍👩‍👧 e\u{301}"
    let values: [(name: String, bytes: [UInt8])] = [
      ("cursor", Array("page 7".utf8)), (escapes, Array(escapes.utf8)), ("\n\t\u{1f}", [1, 2]),
      ("empty", []), ("bytes", Array(0...255)), ("line", Array("a\nb".utf8)), ("torn", [0xC3]),
      ("\u{e9}", [0x31]), ("e\u{301}", [0x32]),
    ]
    for (name, bytes) in values {
      try change(.setValue(named: name, from: nil, to: bytes))
    }
    // A value and a task in one batch.
    try append(
      .change(.setValue(named: "cursor", from: nil, to: Array("page 8".utf8))),
      .change(.insert(task(1), onDuplicate: .keep)),
      .change(.setValue(named: "gone", from: nil, to: [0]))
    )
    try change(
      .setValue(named: "gone", from: [0], to: nil),
      .setValue(named: "never there", from: nil, to: nil),
      .setValue(named: "empty", from: [], to: [3]),
      .setValue(named: "empty", from: [3], to: [])
    )
    try begin(1)
    try change(
      .succeed(lease(1), at: date(1), retains: true),
      .prune(.succeeded, endedBefore: date(9), keepingLatest: 0, now: date(9)),
      .rebase(date(-9))
    )
  }

  /// Compacts a file of values, and writes changes during and after the compaction.
  mutating func writeCompactedValues() throws {
    for name in ["b", "a", "é", "z"] {
      try change(.setValue(named: name, from: nil, to: Array(name.utf8)))
    }
    try insert(task(1))
    try begin(1)
    try change(.setValue(named: "z", from: nil, to: nil))
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try change(.setValue(named: "a", from: nil, to: [0]))
    journal = try compaction.finish(journal, at: date(6))
    try change(.setValue(named: "c", from: nil, to: Array("c".utf8)))
  }
}
