/// What a virtual time does when none of its jobs can run.
enum IdleStep: Equatable {
  /// Lets real work that takes turns begin, or lets its caller go on after it has ended.
  case takeTurn
  /// Moves the time to the first deadline and wakes what sleeps until then.
  case wake
  /// Moves the time to the target of the first advance and ends that advance.
  case endAdvance
  /// Waits for real work: the time stands still.
  case waitForRealWork
  /// Gives up: no step of the virtual time can make a job run.
  case stuck

  /// Decides on the step.
  ///
  /// Sleeps that are due at the target of an advance end before the advance.
  init(
    mode: VirtualTime.Mode,
    firstDeadline: VirtualClock.Instant?,
    firstTarget: VirtualClock.Instant?,
    hasTurn: Bool,
    isHeld: Bool
  ) {
    if hasTurn {
      // Even while other real work is in flight: it may be waiting for this turn.
      self = .takeTurn
    } else if isHeld {
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
