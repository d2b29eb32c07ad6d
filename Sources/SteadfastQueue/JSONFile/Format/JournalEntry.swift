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
  /// The file was compacted. Everything before this line is durable.
  case compacted(at: Date, bytesBefore: Int)
  /// A change to a task. The tokens of its leases have no meaning.
  ///
  /// An insertion is one that earlier versions wrote if its task has a unique key.
  case change(TaskChange)
  /// A new task that earlier versions don't know how to treat, and what becomes of it.
  case addition(TaskRecord, Addition)
  /// The retry of a task that has a successor, which takes its place.
  case supersession(TaskChange)
  /// The restart of a task along with which these tasks were not restarted.
  ///
  /// They were cancelled because of it, and other tasks have their unique keys.
  case restart(TaskChange, excluding: [TaskID])
  /// The value of this name, from now on; `nil` if there is none any more.
  case value(named: String, [UInt8]?)
  /// What the task of the lines before remembered under this name when the file was compacted.
  case memory(TaskID, named: String, [UInt8])
  /// An attempt has begun.
  case begin(TaskID)
  /// The file was opened, and the tasks that had begun were made available again.
  ///
  /// Each of them has one more interruption.
  case interruption
  /// The file was closed in good order. Everything before this line is durable.
  case seal

  /// The name of the format, in the header.
  static var formatName: String { "steadfast-queue" }
  /// The version of the format that this code writes, and the greatest that it reads.
  static var formatVersion: Int { 1 }
}

extension JournalEntry {
  /// Whether the entry is of a kind with which a compacted file begins.
  ///
  /// A `task` may stand only among these entries: its place is a number from which later lines
  /// count on.
  var isOfSnapshot: Bool {
    switch self {
    case .header, .task, .memory, .begin: true
    case .compacted, .change, .addition, .supersession, .restart, .value, .interruption, .seal:
      false
    }
  }
}

/// A task with the state that its record does not have.
struct KeptTask: Sendable {
  /// The greatest place that is written or read.
  static var maxPosition: UInt64 { .max >> 1 - 1 }

  var record: TaskRecord
  /// The task's place among its equals, where a greater number comes later.
  let position: UInt64
  /// Whether a later task has taken the task's unique key, though this one has not ended.
  let hasLostKey: Bool
  /// The task's place among those with its order key; 0 if it has none.
  var orderNumber: UInt64 = 0
  /// Whether an earlier version has written the task.
  ///
  /// A task that had ended held its key there, and no other task with the key could be added.
  var isOld = false
}
