#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue's file holds.
public struct JSONFileStatistics: Sendable, Hashable {
  /// The last compaction of a file, which wrote it again without its dead lines.
  public struct Compaction: Sendable, Hashable {
    /// When the compaction was done.
    public let date: Date
    /// The size of the file before, in bytes.
    public let bytesBefore: Int
    /// The size of the file after it was compacted, in bytes.
    public let bytesAfter: Int
  }

  /// Why a file that was due for a compaction was not compacted.
  public struct FailedCompaction: Sendable, Hashable {
    /// When the compaction failed.
    public let date: Date
    /// The reason, for a person to read.
    public let reason: String
    /// The size in bytes that the file must reach before the store tries again on its own.
    ///
    /// It tries earlier if the tasks of the file take half as many bytes as they did.
    public let nextSize: Int
  }

  /// How many tasks the file holds, including those that are retained.
  public let taskCount: Int
  /// How many lines the file has.
  public let recordCount: Int
  /// About how many lines would be left if the file were compacted now.
  public let liveRecordCount: Int
  /// How many lines are dead: later lines have made them void.
  public var deadRecordCount: Int { max(0, recordCount - liveRecordCount) }
  /// The size of the file, in bytes.
  public let byteCount: Int
  /// The last compaction; `nil` if the file was never compacted.
  public let lastCompaction: Compaction?
  /// Why the last compaction failed; `nil` if none has failed since the file was opened.
  ///
  /// It is also `nil` after a compaction that succeeded. Until one succeeds, the file goes on
  /// growing. Each reason is also written to standard error, once for failures in a row that have
  /// the same reason.
  public let failedCompaction: FailedCompaction?
}
