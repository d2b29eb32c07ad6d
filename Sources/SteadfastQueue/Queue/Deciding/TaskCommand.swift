import SystemFoundation

/// A caller's command for a task, which may arrive while the task is being performed.
enum TaskCommand: Sendable, Equatable {
  case cancel, pause, remove
  /// Perform the task as if it were new, with or without its memory.
  case restart(forgets: Bool)
  /// Perform the task from this date on, or from now on if the date is past or `nil`.
  ///
  /// The command is refused for a task that is being performed.
  case reschedule(to: Date?)
  /// Make the task wait again, for example because the request to pause it was withdrawn.
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

  /// Returns whether the command makes a task available now, and the task is already available.
  ///
  /// Carrying out the command would move such a task behind the other available tasks.
  func isMet(by record: TaskRecord, now: Date) -> Bool {
    self == .reschedule(to: nil) && record.state != .running && record.availableDate <= now
  }

  /// Whether the command cancels an attempt that is in progress.
  var cutsShort: Bool {
    switch self {
    case .cancel, .pause, .restart, .remove, .release: true
    case .reschedule: false
    }
  }

  /// Returns whether this command has no effect after an earlier one.
  func isPointless(after earlier: TaskCommand) -> Bool {
    switch (self, earlier) {
    case (.pause, .cancel), (.pause, .remove), (.cancel, .remove): true
    case (.reschedule, _): earlier.cutsShort
    case (.cancel, _), (.pause, _), (.restart, _), (.remove, _), (.release, _): false
    }
  }
}

/// Converts commands from and to the form in which a store has them.
extension TaskCommand {
  init(_ stored: StoredCommand) {
    self =
      switch stored {
      case .cancel: .cancel
      case .pause: .pause
      case .remove: .remove
      case .restart: .restart(forgets: false)
      case .startOver: .restart(forgets: true)
      case .release: .release
      }
  }

  /// Returns whether this command has no effect after the command that is stored with the task.
  func isPointless(afterCommandOf record: TaskRecord) -> Bool {
    record.command.map { isPointless(after: TaskCommand($0)) } ?? false
  }

  /// The command in the form in which a store has it; `nil` if a running task refuses the command.
  var stored: StoredCommand? {
    switch self {
    case .cancel: .cancel
    case .pause: .pause
    case .remove: .remove
    case .restart(let forgets): forgets ? .startOver : .restart
    case .release: .release
    case .reschedule: nil
    }
  }
}

/// A command for a task that is carried out when the queue no longer leases the task.
struct PendingCommand: Sendable {
  let id: TaskID
  let command: TaskCommand
}
