/// What a virtual time does when none of its jobs can run.
enum IdleStep: Equatable {
  /// Moves to the first deadline and wakes who sleeps until then.
  case wake
  /// Moves to the target of the first advance and ends that advance.
  case endAdvance
  /// Waits for real work: the time stands still.
  case waitForRealWork
  /// Gives up: no step of its own can make anything run.
  case stuck

  /// The step for this situation; an advance ends after the sleeps that are due at its target.
  init(
    mode: VirtualTime.Mode,
    firstDeadline: VirtualClock.Instant?,
    firstTarget: VirtualClock.Instant?,
    isHeld: Bool
  ) {
    if isHeld {
      self = .waitForRealWork
    } else if let firstTarget {
      self = firstDeadline.map { $0 <= firstTarget } ?? false ? .wake : .endAdvance
    } else if firstDeadline != nil, mode == .automatic {
      self = .wake
    } else {
      self = .stuck
    }
  }
}
