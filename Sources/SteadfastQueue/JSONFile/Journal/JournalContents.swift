/// What a reader found in a file.
struct JournalContents: Sendable {
  var table = TaskTable()
  var version = 0
  var generation = 0
  var lastCompaction: JSONFileStatistics.Compaction?
  /// How many tasks had an attempt that began and did not end.
  var interruptionCount = 0
  /// Whether the last good line says that the file was closed properly.
  var isSealed = false
  /// The sequence number of the line to write next.
  var nextSequence: UInt64 = 0
  /// The offset at which the last good line ends; what follows is torn.
  var goodSize = 0
  /// How many lines after the first torn one can be read.
  var tornLineCount = 0
  /// The offset of the first line that the last good line did not know to be durable.
  var unsyncedOffset = 0
}

/// Why a file can't be used.
enum JournalProblem: Error, Equatable {
  /// The first line is not a header of this format.
  case notAJournal
  case newerVersion(Int)
  case unknownKind(String, line: Int)
  /// A line that was durable, or that follows such a line, is not what was written.
  case damaged(line: Int, byte: Int, reason: String)
  /// The system can't read the bytes of the file.
  case unreadable(SystemCallError)
}
