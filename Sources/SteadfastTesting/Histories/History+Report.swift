public import SteadfastQueue

extension History {
  /// The result of a check.
  public struct Report: Sendable, CustomStringConvertible {
    /// The number of tasks that the history knows.
    public internal(set) var taskCount = 0
    /// The broken promises, each with the tasks and lines that show it.
    public internal(set) var violations: [Violation] = []
    /// The promises that were not checked, each with the reason.
    public internal(set) var skipped: [(promise: Promise, reason: String)] = []
    /// How often what seldom happens did happen.
    public internal(set) var rarePaths = RarePaths()

    /// Whether no promise is broken that was checked.
    public var passes: Bool { violations.isEmpty }

    /// The broken promises.
    public var broken: Set<Promise> { Set(violations.map(\.promise)) }

    /// A readable text: the counts, up to ten violations of each promise, and what was not checked.
    public var description: String {
      var lines = ["\(taskCount) tasks, \(violations.count) violations; \(rarePaths)"]
      for promise in Promise.allCases {
        let found = violations.filter { $0.promise == promise }
        lines += found.prefix(10).map(\.description)
        if found.count > 10 { lines.append("\(promise.rawValue): and \(found.count - 10) more") }
      }
      lines += skipped.map { "not checked: \($0.promise.rawValue), \($0.reason)" }
      return lines.joined(separator: "\n")
    }
  }

  /// A broken promise.
  public struct Violation: Sendable, CustomStringConvertible {
    /// The promise.
    public let promise: Promise
    /// What was found.
    public let found: String
    /// The tasks that it concerns.
    public let tasks: [TaskID]
    /// The lines that show it, each after its file and its number.
    public let lines: [String]

    /// The promise, what was found, and the tasks and lines that show it.
    public var description: String {
      let shown = lines.map { "    \($0.count > 400 ? $0.prefix(400) + "…" : $0[...])" }
      return """
        \(promise.rawValue): \(promise.sentence)
          found: \(found)
          tasks: \(tasks.map(\.description).joined(separator: ", "))
          lines:
        \(shown.joined(separator: "\n"))
        """
    }
  }

  /// How often what seldom happens did happen.
  ///
  /// A run in which none of it happens says little. Demand a number of each.
  public struct RarePaths: Sendable, Hashable, CustomStringConvertible {
    /// Claims that ran out while their attempts were under way.
    public internal(set) var lostLeases = 0
    /// Changes that were carried out although the call had no answer.
    public internal(set) var unansweredButDone = 0
    /// Changes that were not carried out, and whose call had no answer.
    public internal(set) var unansweredAndNotDone = 0
    /// Batches whose last two tasks ended within a millisecond.
    public internal(set) var closeLastMembers = 0
    /// Attempts that began when the task had been handed out again.
    ///
    /// A process that is stopped right before an attempt begins can't know it.
    public internal(set) var lateBegins = 0

    /// The numbers in words.
    public var description: String {
      "\(lostLeases) claims lost while running, \(unansweredButDone) changes without an answer that "
        + "were done and \(unansweredAndNotDone) that were not, \(closeLastMembers) batches whose "
        + "last two tasks ended together, \(lateBegins) attempts that began with a claim that had "
        + "run out"
    }
  }
}
