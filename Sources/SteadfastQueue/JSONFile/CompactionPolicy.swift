/// When a file is worth being written anew, and in how large steps.
struct CompactionPolicy: Sendable {
  /// Smaller files are left as they are.
  var minimumSize = 4 << 20
  /// How many bytes a step writes, about: other work waits for it.
  var stepSize = 256 << 10
  /// How many tasks a step writes, at most: values that callers have handed over are encoded anew.
  var stepTasks = 256
  /// How many bytes are written between flushes: the last flush, for which all work waits, is short.
  var flushSize = 1 << 20

  /// Whether it is worth it: most lines are dead, and the file is twice the size that it would have.
  ///
  /// So that a byte is rewritten once for each byte that is dropped, at most.
  func isDue(size: Int, compactSize: Int, records: Int, liveRecords: Int) -> Bool {
    size >= minimumSize && size / 2 >= compactSize && records / 2 >= liveRecords
  }
}
