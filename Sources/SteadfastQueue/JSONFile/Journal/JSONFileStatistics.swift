#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue's file holds.
public struct JSONFileStatistics: Sendable, Hashable {
  /// When a file was last written anew without what was dead in it.
  public struct Compaction: Sendable, Hashable {
    /// When it was done.
    public let date: Date
    /// The size of the file before, in bytes.
    public let bytesBefore: Int
    /// The size of the file after it, in bytes.
    public let bytesAfter: Int
  }

  /// Why a file that should have been compacted was not.
  public struct FailedCompaction: Sendable, Hashable {
    /// When it failed.
    public let date: Date
    /// Why, for a person to read.
    public let reason: String
    /// How large the file must become before another one is tried by itself, in bytes.
    public let nextSize: Int
  }

  /// How many tasks it holds, ended ones that are kept among them.
  public let taskCount: Int
  /// How many lines it has.
  public let recordCount: Int
  /// How many lines would be left, about, if it were compacted now.
  public let liveRecordCount: Int
  /// How many lines only say what later ones have made void.
  public var deadRecordCount: Int { max(0, recordCount - liveRecordCount) }
  /// Its size, in bytes.
  public let byteCount: Int
  /// When it was last compacted; `nil` if it never was.
  public let lastCompaction: Compaction?
  /// Why the last compaction has failed since the file was opened; `nil` if none has since one
  /// was done.
  ///
  /// The file goes on growing meanwhile. Each reason is written to standard error too, once in a row.
  public let failedCompaction: FailedCompaction?
}
