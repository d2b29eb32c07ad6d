/// The greatest lengths of the lines of the file.
extension JournalBody {
  /// The greatest length of a change's body: a longer one is neither written nor read.
  ///
  /// After a compaction, a task's line holds what the task was made with and what has happened to
  /// it since, above all its last error. Together these must not be too long to be read.
  static func maxLength(of change: TaskChange) -> Int {
    switch change {
    case .insert, .update: maxInsertionLength
    case .setValue: maxValueLength
    case .remember, .complete, .suspend: maxMemoryLength
    case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
      .reschedule, .remove, .extend, .prune, .rebase:
      maxOtherLength
    }
  }

  /// The greatest length of the body of a line of some kind.
  ///
  /// For changes, it is that of `maxLength(of:)` above. Other lines may be as long as any line.
  static func maxLength(of kind: JournalKind) -> Int {
    switch kind {
    case .insert, .update: maxInsertionLength
    case .add: maxInsertionLength + maxDecisionLength
    case .retry: maxOtherLength + maxDecisionLength
    case .value: maxValueLength
    case .remember, .complete, .suspend, .memory: maxMemoryLength
    case .succeed, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .reschedule,
      .remove, .extend, .prune, .rebase:
      maxOtherLength
    // A restart lists the tasks that are not restarted along with it.
    case .restart, .header, .task, .kept, .compacted, .begin, .interruption, .seal:
      JournalLine.maxLength
    }
  }

  private static var maxInsertionLength: Int { JournalLine.maxLength - 64 << 10 }
  /// The greatest length of what the table adds to a line when it decides about the change.
  private static var maxDecisionLength: Int { 64 }
  private static var maxOtherLength: Int { 32 << 10 }
  /// The greatest length of the line of a value.
  ///
  /// It is almost twice as much as the longest line has, in which each byte is escaped.
  private static var maxValueLength: Int { 256 << 10 }
  /// The greatest length of the line of something that a task remembers, likewise.
  private static var maxMemoryLength: Int { 512 << 10 }
}
