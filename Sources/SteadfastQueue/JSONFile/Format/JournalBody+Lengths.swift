/// How long the lines of the file may be.
extension JournalBody {
  /// Longer bodies of a change are neither written nor read.
  ///
  /// When the file is compacted, a task's line holds what the task was made with and what has come of
  /// it since, the last error above all: together they must not be too long to be read.
  static func maxLength(of change: TaskChange) -> Int {
    switch change {
    case .insert, .update: maxInsertionLength
    case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
      .reschedule, .remove, .extend, .prune, .rebase:
      maxOtherLength
    }
  }

  /// As `maxLength(of:)` for changes; other lines are as long as any may be.
  static func maxLength(of kind: JournalKind) -> Int {
    switch kind {
    case .insert, .update: maxInsertionLength
    case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
      .reschedule, .remove, .extend, .prune, .rebase:
      maxOtherLength
    case .header, .task, .compacted, .begin, .interruption, .seal: JournalLine.maxLength
    }
  }

  private static var maxInsertionLength: Int { JournalLine.maxLength - 64 << 10 }
  private static var maxOtherLength: Int { 32 << 10 }
}
