/// By how much a table underestimates the size of a compacted file, as a compaction has found.
///
/// The estimate counts some texts without the escapes that they need, for example. All sizes are in
/// bytes.
struct Underestimate: Sendable {
  /// How much the lines were estimated to take.
  private var estimate = 0
  /// How much they take, at most.
  private var size = 0

  /// Takes note of lines that a compaction leaves.
  mutating func add(_ lines: [JournalBody], estimate: Int) {
    self.estimate += estimate
    size += lines.reduce(0) { $0 + $1.byteCount }
  }

  /// Returns what is to be added to an estimate.
  ///
  /// It is 0 if less than a quarter was missing, which makes no file seem worth a compaction. It is
  /// 0, too, if the estimate has fallen by a quarter since: what takes more than was estimated may
  /// be gone, and the next compaction finds out.
  func excess(over estimate: Int) -> Int {
    guard size - self.estimate >= size / 4, estimate > self.estimate / 4 * 3 else { return 0 }
    return size - self.estimate
  }
}
