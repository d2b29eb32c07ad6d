public import SteadfastQueue
public import SystemFoundation

/// The calls of several processes to one store, with their results.
///
/// ``HistoryRecorder`` writes a history, one file for each process.
///
/// ```swift
/// let report = try History(contentsOf: files).check()
/// #expect(report.passes, "\(report)")
/// ```
/// The check does not depend on how the store works. It looks for results that no correct store
/// could have returned, whether or not the calls without a result took effect. So each violation
/// that it reports is real, but it may miss violations while several calls overlap.
public struct History: Sendable {
  /// The lines of one file, or lines that were recorded together.
  struct Source: Sendable {
    let name: String
    let lines: [HistoryLine]
  }

  let sources: [Source]

  /// Reads a history.
  ///
  /// A killed process may have left half a line at the end of its file. That line is ignored.
  /// - Parameter files: the files, one for each process.
  /// - Throws: A ``HistoryError`` that names the file and the line if any other line can't be
  ///   decoded; the error of a file that can't be read.
  public init(contentsOf files: [URL]) throws {
    sources = try files.map { file in
      let name = file.lastPathComponent
      return Source(name: name, lines: try Self.lines(of: Data(contentsOf: file), named: name))
    }
  }

  /// Makes a history from the lines of all processes, in the order in which they were recorded.
  package init(_ lines: [HistoryLine]) { sources = [Source(name: "history", lines: lines)] }

  package static func lines(of data: Data, named name: String) throws -> [HistoryLine] {
    let decoder = JSONDecoder()
    let lines = data.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    // The last element is empty or incomplete, because no line break follows it.
    return try lines.dropLast().enumerated().map { index, line in
      do {
        return try decoder.decode(HistoryLine.self, from: Data(line))
      } catch {
        throw HistoryError(
          "line \(index + 1) of \(name) can't be decoded as a line of a history; pass only files "
            + "that this version of HistoryRecorder wrote"
        )
      }
    }
  }

  /// Returns the line at a position as JSON, after the name of its file and its number.
  func text(at position: HistoryPosition) -> String {
    let source = sources[position.source]
    let line = source.lines[position.line]
    let bytes = try? StableJSON.encode(line)
    let text = bytes.map { String(decoding: $0, as: UTF8.self) } ?? "\(line)"
    return "\(source.name):\(position.line + 1): \(text)"
  }
}

/// The position of a line in a history, with its date.
struct HistoryPosition: Sendable {
  /// Microseconds since 1970.
  let date: Int64
  let source: Int
  let line: Int

  /// Returns whether this line was certainly written before the line at the other position.
  ///
  /// Two lines in different files with the same date may have been written in either order.
  func isCertainlyBefore(_ other: HistoryPosition) -> Bool {
    source == other.source ? line < other.line : date < other.date
  }
}

extension HistoryPosition: Comparable {
  /// The order for sorting; it is arbitrary for lines of two files with the same date.
  static func < (left: HistoryPosition, right: HistoryPosition) -> Bool {
    (left.date, left.source, left.line) < (right.date, right.source, right.line)
  }
}

extension History {
  /// A promise of a store; a history can show that it is broken.
  @nonexhaustive
  public enum Promise: String, Sendable, Hashable, CaseIterable {
    /// No acknowledged task is missing.
    case nothingIsLost = "H1"
    /// Only enqueued tasks are claimed, and a task that was enqueued once ends once.
    case nothingIsAdded = "H2"
    /// A task ends once, with its latest lease.
    case oneEnd = "H3"
    /// A task is claimed by one process at a time.
    case oneHolder = "H4"
    /// Attempts and interruptions are counted exactly.
    case exactCounts = "H5"
    /// Tasks with the same order key are performed in the order in which they were enqueued.
    case orderOfKeys = "H6"
    /// Tasks with the same order key are performed one at a time.
    case oneRunnerForKey = "H7"
    /// A task that waits for others is performed after all of them, and ends once.
    case waitingTasksAreLast = "H8"
    /// At most as many attempts start within an interval as a limit allows.
    case limitsHold = "H9"
    /// All tasks end after the faults have ended.
    case everythingEnds = "H10"

    /// The promise in words.
    public var sentence: String {
      switch self {
      case .nothingIsLost: "No acknowledged task is missing: it has ended, or is in the store."
      case .nothingIsAdded:
        "Only enqueued tasks are claimed, and a task that was enqueued once ends once."
      case .oneEnd: "Only one end of a task is accepted, and only with the task's latest lease."
      case .oneHolder: "A task is claimed again only after its claim has ended or expired."
      case .exactCounts: "A task's counts of retries and interruptions are exact."
      case .orderOfKeys:
        "A task with an order key is claimed after the earlier tasks with that key have ended."
      case .oneRunnerForKey: "Only one of the tasks with the same order key is claimed at a time."
      case .waitingTasksAreLast:
        "A task is claimed after the tasks that it waits for, and a batch's follower ends once."
      case .limitsHold: "At most as many attempts start within an interval as the limit allows."
      case .everythingEnds: "After the faults have ended, every task ends within a time limit."
      }
    }
  }

  /// What a check expects of a run besides the promises that hold for every run.
  public struct Expectations: Sendable {
    /// A limit on the attempts that may start within an interval.
    public struct StartLimit: Sendable {
      /// The maximum number of attempts.
      public var count: Int
      /// The length of the interval.
      public var interval: Duration
      /// The names of the tasks to which the limit applies; `nil` for all.
      public var names: Set<String>?

      /// Makes a limit.
      public init(_ count: Int, per interval: Duration, names: Set<String>? = nil) {
        self.count = count
        self.interval = interval
        self.names = names
      }
    }

    /// The limits of the queues (``Promise/limitsHold``).
    public var limits: [StartLimit]
    /// The time after ``HistoryRecorder/recordEndOfFaults()`` within which all tasks must end;
    /// `nil` if that is not checked.
    ///
    /// Allow for leases that must expire first, and for the delays before retries.
    public var endsWithin: Duration?
    /// How far the recorders' clocks and the store's own clock may differ; by default not at all.
    ///
    /// The check does not notice a claim that expires too early by less than this duration. It
    /// merges the lines of several files by their dates, so keep the clocks of the machines
    /// synchronized anyway.
    public var clockTolerance: Duration

    /// Makes expectations.
    public init(
      limits: [StartLimit] = [],
      endsWithin: Duration? = nil,
      clockTolerance: Duration = .zero
    ) {
      self.limits = limits
      self.endsWithin = endsWithin
      self.clockTolerance = clockTolerance
    }
  }
}

extension History {
  /// The result of a check.
  public struct Report: Sendable, CustomStringConvertible {
    /// The number of tasks in the history.
    public internal(set) var taskCount = 0
    /// The broken promises, each with the tasks and lines that show it.
    public internal(set) var violations: [Violation] = []
    /// The promises that were not checked, each with the reason.
    public internal(set) var skipped: [(promise: Promise, reason: String)] = []
    /// The counts of rare events in the history.
    public internal(set) var rarePaths = RarePaths()

    /// Whether the store has kept all promises that were checked.
    public var passes: Bool { violations.isEmpty }

    /// The broken promises.
    public var broken: Set<Promise> { Set(violations.map(\.promise)) }

    /// The counts, up to ten violations of each promise, and the unchecked promises, as readable
    /// text.
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
    /// A description of the violation.
    public let found: String
    /// The affected tasks.
    public let tasks: [TaskID]
    /// The lines that show the violation, each after the name of its file and its number.
    public let lines: [String]

    /// The promise, what was found, and the tasks and lines that show the violation.
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

  /// The counts of rare events in a history.
  ///
  /// A run in which they don't occur proves little about a store. In a test, require a minimum of
  /// each.
  public struct RarePaths: Sendable, Hashable, CustomStringConvertible {
    /// Claims that expired while their attempts were running.
    public internal(set) var lostLeases = 0
    /// Changes that were made although their calls returned no result.
    public internal(set) var unansweredButDone = 0
    /// Changes that were not made, and whose calls returned no result.
    public internal(set) var unansweredAndNotDone = 0
    /// Batches whose last two tasks ended within a millisecond.
    public internal(set) var closeLastMembers = 0
    /// Attempts that started after the task had been claimed again.
    ///
    /// This happens when a process is suspended right before it starts the attempt.
    public internal(set) var lateBegins = 0

    /// The counts in words.
    public var description: String {
      "\(lostLeases) claims that expired during an attempt, \(unansweredButDone) changes without a "
        + "result that were made and \(unansweredAndNotDone) that were not, \(closeLastMembers) "
        + "batches whose last two tasks ended together, \(lateBegins) attempts that started after "
        + "their task was claimed again"
    }
  }
}
