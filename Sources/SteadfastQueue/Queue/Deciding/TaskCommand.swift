import SystemFoundation

/// A command for a task, which may arrive while the task is being performed.
enum TaskCommand: Sendable, Equatable {
  case cancel, pause, remove
  /// Perform the task as if it were new, with or without its memory.
  case restart(forgets: Bool)
  /// Perform the task from this date on, or from now on if the date is past or `nil`.
  ///
  /// The command is refused for a task that is being performed.
  case reschedule(to: Date?)
  /// Release the task, for example because its pause was withdrawn.
  case release
}

extension TaskCommand {
  func applies(to state: TaskState) -> Bool {
    switch self {
    case .cancel, .reschedule: !state.isFinished
    case .pause: !state.isFinished && state != .paused
    case .restart, .remove: true
    case .release: state == .paused
    }
  }

  /// Returns `true` if the command makes a task available now, and the task is already available.
  ///
  /// Such a task keeps its position in line.
  func isMet(by record: TaskRecord, now: Date) -> Bool {
    self == .reschedule(to: nil) && record.state != .running && record.availableDate <= now
  }

  /// Whether the command cuts an attempt short.
  var cutsShort: Bool {
    switch self {
    case .cancel, .pause, .restart, .remove, .release: true
    case .reschedule: false
    }
  }

  /// Returns whether an earlier command makes this one pointless.
  func isPointless(after asked: TaskCommand) -> Bool {
    switch (self, asked) {
    case (.pause, .cancel), (.pause, .remove), (.cancel, .remove): true
    case (.reschedule, _): asked.cutsShort
    case (.cancel, _), (.pause, _), (.restart, _), (.remove, _), (.release, _): false
    }
  }
}

/// A command for a task that is carried out when the queue no longer leases the task.
struct PendingCommand: Sendable {
  /// A change that may be stored although the store reported a failure.
  struct InDoubtChange: Sendable {
    /// The command for which the change was made.
    let command: TaskCommand
    let settlement: Settlement
  }

  let id: TaskID
  let command: TaskCommand
  /// A change for this request, or for a request that this one replaced, that may be stored.
  var inDoubtChange: InDoubtChange?
}
