/// Why a virtual time could not go on, or could not end well.
public struct VirtualTimeError: Error, Sendable, CustomStringConvertible {
  /// The kind of a ``VirtualTimeError``; more may come.
  public struct Code: Sendable, Hashable, CustomStringConvertible {
    /// The code's name.
    public let description: String

    /// The body has not ended, and nothing in its world could ever go on.
    public static let stuck = Code(description: "stuck")
    /// The body has ended, and tasks still sleep on its clock.
    public static let sleepersLeft = Code(description: "sleepersLeft")
  }

  /// The kind of the error.
  public let code: Code
  /// The instant at which the time stood.
  public let now: VirtualClock.Instant
  /// The sleeps that had not ended, in the order in which they would have.
  public let pendingSleeps: [VirtualClock.PendingSleep]
  /// What is wrong and what to do about it.
  public let description: String
}

extension VirtualTimeError {
  static func stuck(
    _ time: VirtualTime,
    outcome: String? = nil
  ) -> VirtualTimeError {
    let now = time.clock.now
    let sleeps = time.clock.pendingSleeps
    var text = "nothing can run at \(now): "
    if sleeps.isEmpty {
      text += """
        nothing sleeps on the virtual clock and no real work is in flight, so what the body \
        awaits would never come. If it comes from outside (a detached task, the network, a \
        callback, another clock), wrap the wait in withRealWork
        """
    } else {
      text += """
        \(list(sleeps, after: now)), and auto-advance is off. Call advance(by:), or make the \
        virtual time automatic
        """
    }
    if let outcome { text += ". The body did not end when it was cancelled for this, \(outcome)" }
    return VirtualTimeError(code: .stuck, now: now, pendingSleeps: sleeps, description: text)
  }

  static func sleepersLeft(_ time: VirtualTime) -> VirtualTimeError? {
    let now = time.clock.now
    let sleeps = time.clock.pendingSleeps
    guard !sleeps.isEmpty else { return nil }
    let text = """
      the body has returned at \(now), but left \(list(sleeps, after: now)). Await or cancel \
      the tasks that sleep before the body returns
      """
    return VirtualTimeError(code: .sleepersLeft, now: now, pendingSleeps: sleeps, description: text)
  }

  private static func list(
    _ sleeps: [VirtualClock.PendingSleep],
    after now: VirtualClock.Instant
  ) -> String {
    let shown = sleeps.prefix(5).map { sleep in
      let task = sleep.taskName.map { " (task \"\($0)\")" } ?? ""
      return "in \(now.duration(to: sleep.deadline))\(task)"
    }
    let more = sleeps.count > shown.count ? ", and so on" : ""
    let noun = sleeps.count == 1 ? "sleeper, due" : "sleepers, due"
    return "\(sleeps.count) \(noun) \(shown.joined(separator: ", "))\(more)"
  }
}
