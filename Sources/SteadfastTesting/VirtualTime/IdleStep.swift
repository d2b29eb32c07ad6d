/// What a virtual time does when none of its jobs can run.
enum IdleStep: Equatable {
  /// Lets a work that takes turns begin, or the caller of one that has ended go on.
  case takeTurn
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
    hasTurn: Bool,
    isHeld: Bool
  ) {
    if hasTurn {
      // Even beside other real work, which may be waiting for this one.
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
