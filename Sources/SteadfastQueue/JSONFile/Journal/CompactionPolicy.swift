/// When a file is worth a compaction, and how large the steps are.
struct CompactionPolicy: Sendable {
  /// The size that a file must reach before it is compacted, in bytes.
  var minimumSize = 4 << 20
  /// How many bytes a file may be larger than twice its compact size.
  var spareSize = 32 << 20
  /// About how many bytes a step writes, while other work waits.
  var stepSize = 256 << 10
  /// How many tasks a step writes, at most.
  ///
  /// The line of each task is encoded again.
  var stepTasks = 64
  /// How many bytes are written between flushes.
  ///
  /// All work waits for the last flush, so that one should be short.
  var flushSize = 1 << 20

  /// Returns whether a compaction is due: most lines are dead, and the file is far too large.
  ///
  /// The compact size is the size after the last compaction or at the opening, or what the tasks
  /// take now, if that is less. Writing a task again costs more than writing the lines of its life.
  /// So a small file may become four times as large as its compact size: one byte is rewritten for
  /// three that are dropped. For a large file, disk space may cost more, so there the ratio is
  /// about one to one.
  func isDue(size: Int, compactSize: Int, records: Int, liveRecords: Int) -> Bool {
    size >= minimumSize && records / 2 >= liveRecords
      && (size / 4 >= compactSize || (size - spareSize) / 2 >= compactSize)
  }
}
