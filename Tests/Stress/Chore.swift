import SteadfastQueue

/// A task of a round: a number that nothing else has, and what its handler does.
struct Chore: TaskPayload {
  /// What happens to the task when it is performed.
  enum Kind: String, Codable, CaseIterable, Sendable {
    /// Returns.
    case easy
    /// Throws the first time.
    case failsOnce
    /// Throws each time, until its retries are used up.
    case failsAlways
    /// Throws, and says when to try again.
    case asksForDate
    /// Gives itself up.
    case abandonsItself
    /// Puts itself off twice.
    case snoozes
    /// Sleeps for longer than its time limit.
    case isSlow
    /// Works on though it is cancelled.
    case ignoresCancellation
    /// Sleeps, and throws when it is cancelled.
    case sleeps
    /// Adds another task.
    case hasChild
    /// Pauses its queue, and resumes it.
    case pausesQueue
    /// Takes itself out.
    case cancelsItself
    /// Says how far it is.
    case reportsProgress
    /// May be too late when its turn comes.
    case expires
  }

  let number: Int
  let kind: Kind
}
