#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a repair of a queue's file has saved, and what is lost.
public struct JSONFileRepair: Sendable, Hashable {
  /// The file as it was found, with all that was wrong; its ``JSONFileReport/counts`` are the tasks
  /// that were saved.
  public let report: JSONFileReport
  /// The file as it was, byte for byte; `nil` if nothing was wrong and nothing was done.
  public let copy: URL?
  /// The lines that say nothing in the repaired file, because they can't be read, or do not fit what
  /// is known of their tasks; not more than a thousand of them.
  ///
  /// Lines that are missing are among ``JSONFileReport/lostRecordCount`` alone.
  public let skippedLines: [JSONFileReport.Problem]
  /// How many such lines there are.
  public let skippedLineCount: Int
}
