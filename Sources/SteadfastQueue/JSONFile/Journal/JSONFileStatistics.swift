public import SystemFoundation

/// Statistics about a queue's file.
public struct JSONFileStatistics: Sendable, Hashable {
  /// A compaction of the file, which rewrote the file without its obsolete lines.
  public struct Compaction: Sendable, Hashable {
    /// The date of the compaction.
    public let date: Date
    /// The size of the file before the compaction, in bytes.
    public let bytesBefore: Int
    /// The size of the file after the compaction, in bytes.
    public let bytesAfter: Int
  }

  /// A compaction that has failed.
  public struct FailedCompaction: Sendable, Hashable {
    /// The date of the failure.
    public let date: Date
    /// The reason for the failure, in plain English.
    public let reason: String
    /// The size, in bytes, at which the store tries again to compact the file.
    ///
    /// The store tries earlier if the tasks need only half as much space as at the failure.
    public let nextSize: Int
  }

  /// The number of tasks in the file, including ended tasks that are retained.
  public let taskCount: Int
  /// The number of lines in the file.
  public let recordCount: Int
  /// The approximate number of lines that would remain if the file were compacted now.
  public let liveRecordCount: Int
  /// The number of dead lines: those that later lines have made obsolete.
  public var deadRecordCount: Int { max(0, recordCount - liveRecordCount) }
  /// The size of the file, in bytes.
  public let byteCount: Int
  /// The last compaction; `nil` if the file was never compacted.
  public let lastCompaction: Compaction?
  /// The last compaction, if it has failed; `nil` if it succeeded, or none has ended since the file
  /// was opened.
  ///
  /// Until a compaction succeeds, the file continues to grow. The reason is also written to
  /// standard error, unless the previous compaction failed for the same reason.
  public let failedCompaction: FailedCompaction?
}
