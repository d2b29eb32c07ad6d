/// When a file is worth being written anew, and in how large steps.
struct CompactionPolicy: Sendable {
  /// Smaller files are left as they are.
  var minimumSize = 4 << 20
  /// How much larger a file may be than twice what it would be.
  var spareSize = 32 << 20
  /// How many bytes a step writes, about: other work waits for it.
  var stepSize = 256 << 10
  /// How many tasks a step writes, at most: the line of each is made anew.
  var stepTasks = 64
  /// How many bytes are written between flushes: the last flush, for which all work waits, is short.
  var flushSize = 1 << 20

  /// Whether it is worth it: most lines are dead, and the file is far larger than it would be.
  ///
  /// What it would be is known from the last time that it was written anew, or opened. To write a
  /// task anew costs more than to write the lines of its life, so a small file may be four times as
  /// large: a byte is rewritten for three that are dropped. Of a large one the disk may be dearer:
  /// then it is about one for one.
  func isDue(size: Int, compactSize: Int, records: Int, liveRecords: Int) -> Bool {
    size >= minimumSize && records / 2 >= liveRecords
      && (size / 4 >= compactSize || (size - spareSize) / 2 >= compactSize)
  }
}
