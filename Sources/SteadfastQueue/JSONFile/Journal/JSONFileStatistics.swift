public import SystemFoundation

/// Statistics about a queue's file.
public struct JSONFileStatistics: Sendable, Hashable {
  /// The last compaction of a file, which rewrote it without its dead lines.
  public struct Compaction: Sendable, Hashable {
    /// The date of the compaction.
    public let date: Date
    /// The size of the file before, in bytes.
    public let bytesBefore: Int
    /// The size of the file after it was compacted, in bytes.
    public let bytesAfter: Int
  }

  /// The reason that a file that was due for a compaction was not compacted.
  public struct FailedCompaction: Sendable, Hashable {
    /// The date of the failure.
    public let date: Date
    /// The reason, for people to read.
    public let reason: String
    /// The size in bytes that the file must reach before the store tries again on its own.
    ///
    /// It tries earlier if the file's tasks shrink to half of their size.
    public let nextSize: Int
  }

  /// The number of tasks in the file, including those that are retained.
  public let taskCount: Int
  /// The number of lines in the file.
  public let recordCount: Int
  /// The approximate number of lines that would remain if the file were compacted now.
  public let liveRecordCount: Int
  /// The number of dead lines, which later lines have made obsolete.
  public var deadRecordCount: Int { max(0, recordCount - liveRecordCount) }
  /// The size of the file, in bytes.
  public let byteCount: Int
  /// The last compaction; `nil` if the file was never compacted.
  public let lastCompaction: Compaction?
  /// The failure of the last compaction; `nil` if none has failed since the file was opened.
  ///
  /// It is also `nil` after a successful compaction. Until one succeeds, the file continues to
  /// grow. Each reason is also written to standard error, once for consecutive failures with the
  /// same reason.
  public let failedCompaction: FailedCompaction?
}
