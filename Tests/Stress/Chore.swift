import SteadfastQueue

/// A task of a round: a unique number, and the behaviour of its handler.
struct Chore: TaskPayload {
  /// The behaviour of the handler.
  enum Kind: String, Codable, CaseIterable, Sendable {
    /// Returns.
    case easy
    /// Throws the first time.
    case failsOnce
    /// Throws each time, until its retries are used up.
    case failsAlways
    /// Throws, and requests a date for the retry.
    case asksForDate
    /// Throws `TaskAbandoned`.
    case abandonsItself
    /// Snoozes twice.
    case snoozes
    /// Sleeps for longer than its time limit.
    case isSlow
    /// Continues although it is cancelled.
    case ignoresCancellation
    /// Sleeps, and throws when it is cancelled.
    case sleeps
    /// Adds another task.
    case hasChild
    /// Pauses its queue, and resumes it.
    case pausesQueue
    /// Cancels its own task.
    case cancelsItself
    /// Reports progress.
    case reportsProgress
    /// Can expire before it is performed.
    case expires
  }

  let number: Int
  let kind: Kind
}
