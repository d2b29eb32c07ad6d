public import SystemFoundation

/// The error of a virtual time that could not continue, or in which something is left over.
public struct VirtualTimeError: Error, Sendable, CustomStringConvertible {
  /// The kind of a ``VirtualTimeError``; later versions may add more.
  public struct Code: Sendable, Hashable, CustomStringConvertible {
    /// The code's name.
    public let description: String

    /// The body has not ended, and none of the virtual time's tasks can ever continue.
    public static let stuck = Code(description: "stuck")
    /// The time has reached its limit, and the body has not ended.
    public static let limitReached = Code(description: "limitReached")
    /// A task that does not run on the virtual time's thread has slept on the virtual time's clock,
    /// or has run a queue with that clock.
    public static let sleepOutside = Code(description: "sleepOutside")
    /// ``VirtualTime/required`` was read outside of a virtual time.
    public static let missing = Code(description: "missing")
    /// The body has ended, but tasks still sleep on the clock.
    public static let sleepersLeft = Code(description: "sleepersLeft")
  }

  /// The kind of the error.
  public let code: Code
  /// The clock's instant when the error occurred.
  public let now: VirtualClock.Instant
  /// The pending sleeps at that instant, in the order of their deadlines.
  public let pendingSleeps: [VirtualClock.PendingSleep]
  /// What is wrong and what to do about it.
  public let description: String
}

extension VirtualTimeError {
  static func stuck(
    _ time: VirtualTime,
    waits: [String] = [],
    outcome: String? = nil
  ) -> VirtualTimeError {
    let now = time.clock.now
    let sleeps = time.clock.pendingSleeps
    var text = "nothing can run at \(now): "
    if sleeps.isEmpty {
      text += """
        nothing sleeps on the virtual clock and no real work is in flight, so the body would wait \
        forever. \(waits.isEmpty ? "" : "The body awaits: \(summary(of: waits)). ")If the body \
        awaits something \(waits.isEmpty ? "" : "else that comes ")from outside (an unstructured \
        task without the executorPreference time.executor, the network, a callback, another \
        clock), wrap the wait in withRealWork
        """
    } else {
      text += summary(of: sleeps, after: now)
      let advice =
        switch time.mode {
        case .manual:
          """
          , and the virtual time is manual. Call advance(by:), or make the virtual time automatic
          """
        case .automatic:
          """
          , in a task that the virtual time does not run and that went to sleep too late. Make \
          that task a child task, or create it with the executorPreference time.executor
          """
        }
      text += advice
    }
    if let outcome { text += ". The body did not end when it was cancelled, \(outcome)" }
    return VirtualTimeError(code: .stuck, now: now, pendingSleeps: sleeps, description: text)
  }

  static func limitReached(_ time: VirtualTime, outcome: String? = nil) -> VirtualTimeError {
    let now = time.clock.now
    let sleeps = time.clock.pendingSleeps
    var text = """
      the body has not ended at \(now), and the limit is \(time.limit.duration): \
      \(summary(of: sleeps, after: now)). If something sleeps again and again, such as a task that \
      is retried forever, end it in the test. Otherwise give the virtual time a greater limit
      """
    if let outcome { text += ". The body did not end when it was cancelled, \(outcome)" }
    return VirtualTimeError(
      code: .limitReached,
      now: now,
      pendingSleeps: sleeps,
      description: text
    )
  }

  static func sleepOutside(_ time: VirtualTime) -> VirtualTimeError {
    VirtualTimeError(
      code: .sleepOutside,
      now: time.clock.now,
      pendingSleeps: time.clock.pendingSleeps,
      description: """
        a task sleeps on the clock of a virtual time, but the virtual time does not run the task, \
        so the time might move before or after the sleep starts. Make that task a child task, or \
        create it with the executorPreference time.executor
        """
    )
  }

  static func runOutside(_ time: VirtualTime, queue: String) -> VirtualTimeError {
    VirtualTimeError(
      code: .sleepOutside,
      now: time.clock.now,
      pendingSleeps: time.clock.pendingSleeps,
      description: """
        the queue '\(queue)' uses the clock of a virtual time, but runs in a task that the \
        virtual time does not run, so the time might move at any point of the queue's work. Run \
        the queue in 'async let' or in a task group, or create its task with the \
        executorPreference time.executor
        """
    )
  }

  static var missing: VirtualTimeError {
    VirtualTimeError(
      code: .missing,
      now: VirtualClock.Instant(),
      pendingSleeps: [],
      description: """
        this code does not run in a virtual time: give the test, or its suite, the trait \
        .virtualTime, or wrap the code in withVirtualTime
        """
    )
  }

  static func sleepersLeft(_ time: VirtualTime) -> VirtualTimeError? {
    let now = time.clock.now
    let sleeps = time.clock.pendingSleeps
    guard !sleeps.isEmpty else { return nil }
    let text = """
      the body has returned at \(now), but left \(summary(of: sleeps, after: now)). Await or \
      cancel the sleeping tasks before the body returns
      """
    return VirtualTimeError(code: .sleepersLeft, now: now, pendingSleeps: sleeps, description: text)
  }

  private static func summary(of waits: [String]) -> String {
    var shown: [String] = []
    for wait in waits where !shown.contains(wait) { shown.append(wait) }
    let more = shown.count > 5 ? "; and so on" : ""
    return shown.prefix(5).joined(separator: "; ") + more
  }

  private static func summary(
    of sleeps: [VirtualClock.PendingSleep],
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

extension VirtualTimeError: LocalizedError {
  /// What is wrong and what to do about it.
  public var errorDescription: String? { description }
}
