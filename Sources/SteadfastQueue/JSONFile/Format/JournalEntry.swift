#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What one line of the file says.
enum JournalEntry: Sendable {
  /// The first line: what the file is.
  case header(version: Int, generation: Int)
  /// A task as it stood when the file was compacted.
  case task(KeptTask)
  /// The file was compacted: all before this line is durable.
  case compacted(at: Date, bytesBefore: Int)
  /// A change to a task. The tokens of its leases mean nothing.
  case change(TaskChange)
  /// An attempt has begun.
  case begin(TaskID)
  /// The file was opened, and tasks that had begun were made available again, each with one
  /// interruption more.
  case interruption
  /// The file was closed in good order: all before it is durable.
  case seal

  /// The name of the format, in the header.
  static var formatName: String { "steadfast-queue" }
  /// The version of the format that this code writes, and the greatest that it reads.
  static var formatVersion: Int { 1 }
}

extension JournalEntry {
  /// Whether it is one of those with which a compaction begins the file.
  ///
  /// Only there a `task` may stand: its place is a number that later lines count on from.
  var isOfSnapshot: Bool {
    switch self {
    case .header, .task, .begin: true
    case .compacted, .change, .interruption, .seal: false
    }
  }
}

/// A task with what its record does not tell.
struct KeptTask: Sendable {
  /// The greatest place that is written, and read.
  static var maxPosition: UInt64 { .max >> 1 - 1 }

  var record: TaskRecord
  /// Where it stands among its equals: the greater the later.
  let position: UInt64
  /// Whether a later task has taken its unique key.
  let hasLostKey: Bool
}
