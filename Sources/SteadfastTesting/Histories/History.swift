public import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What several processes asked of one store, and what they were answered.
///
/// ``HistoryRecorder`` writes it, a file for each process.
///
/// ```swift
/// let report = try History(contentsOf: files).check()
/// #expect(report.passes, "\(report)")
/// ```
/// The check knows nothing of how the store works. It looks for answers that no sound store could
/// have given, whatever happened to the calls without an answer. So it reports nothing by mistake,
/// but may miss what calls that overlap would hide.
public struct History: Sendable {
  /// The lines that one file has, or that were recorded together.
  struct Source: Sendable {
    let name: String
    let lines: [HistoryLine]
  }

  let sources: [Source]

  /// Reads a history.
  ///
  /// A process that was killed may have left half a line at the end of its file. That line is left
  /// out.
  /// - Parameter files: the files, one for each process.
  /// - Throws: A ``HistoryError`` that names the file and the line if anything else can't be read;
  ///   the error of a file that can't be read.
  public init(contentsOf files: [URL]) throws {
    sources = try files.map { file in
      let name = file.lastPathComponent
      return Source(name: name, lines: try Self.lines(of: Data(contentsOf: file), named: name))
    }
  }

  /// Makes a history of lines that were recorded one after another, whatever their processes are.
  package init(_ lines: [HistoryLine]) { sources = [Source(name: "history", lines: lines)] }

  package static func lines(of data: Data, named name: String) throws -> [HistoryLine] {
    let decoder = JSONDecoder()
    let texts = data.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    // Behind the last line break there is nothing, or half a line.
    return try texts.dropLast().enumerated().map { index, text in
      do {
        return try decoder.decode(HistoryLine.self, from: Data(text))
      } catch {
        throw HistoryError(
          "line \(index + 1) of \(name) is not a line of a history, or one of a later version"
        )
      }
    }
  }

  func text(at place: HistoryPlace) -> String {
    let source = sources[place.source]
    let line = source.lines[place.line]
    let bytes = try? StableJSON.encode(line)
    let text = bytes.map { String(decoding: $0, as: UTF8.self) } ?? "\(line)"
    return "\(source.name):\(place.line + 1): \(text)"
  }
}

/// A line's place in a history, and its date.
struct HistoryPlace: Sendable {
  /// Microseconds since 1970.
  let date: Int64
  let source: Int
  let line: Int

  /// Whether what happened here is certain to have happened earlier.
  ///
  /// Lines of different files with the same date may have been written in either order.
  func isCertainlyBefore(_ other: HistoryPlace) -> Bool {
    source == other.source ? line < other.line : date < other.date
  }
}

extension HistoryPlace: Comparable {
  /// An order to sort by; it is arbitrary for lines of two files with the same date.
  static func < (left: HistoryPlace, right: HistoryPlace) -> Bool {
    (left.date, left.source, left.line) < (right.date, right.source, right.line)
  }
}

extension History {
  /// Something that a store promises, and that a history can show to be broken.
  @nonexhaustive
  public enum Promise: String, Sendable, Hashable, CaseIterable {
    /// No acknowledged task is missing.
    case nothingIsLost = "H1"
    /// Nothing is performed that was not enqueued, and nothing twice that was enqueued once.
    case nothingIsAdded = "H2"
    /// A task ends once, by its latest lease.
    case oneEnd = "H3"
    /// A task has one holder at a time.
    case oneHolder = "H4"
    /// Attempts and interruptions are counted exactly.
    case exactCounts = "H5"
    /// Tasks with one order key are performed in their order.
    case orderOfKeys = "H6"
    /// Of the tasks with one order key, one is performed at a time.
    case oneRunnerForKey = "H7"
    /// A task that waits for others is performed after all of them, and ends once.
    case waitingTasksAreLast = "H8"
    /// No more attempts begin within an interval than a limit allows.
    case limitsHold = "H9"
    /// Everything ends once the faults have ended.
    case everythingEnds = "H10"

    /// What is promised.
    public var sentence: String {
      switch self {
      case .nothingIsLost: "No acknowledged task is missing: it has ended, or is in the store."
      case .nothingIsAdded:
        "Nothing is handed out that was not enqueued, and what was enqueued once ends once."
      case .oneEnd: "A task has one accepted end, which names the latest lease handed out."
      case .oneHolder: "A task is handed out again only if its claim has ended or run out."
      case .exactCounts: "A task has as many retries and interruptions as it has had."
      case .orderOfKeys: "A task with an order key is handed out after those that came before it."
      case .oneRunnerForKey: "Of the tasks with one order key, only one is held at a time."
      case .waitingTasksAreLast:
        "A task is handed out after those that it waits for, and what follows a batch ends once."
      case .limitsHold: "No more attempts begin within an interval than the limit allows."
      case .everythingEnds: "Once the faults have ended, every task ends within a bound."
      }
    }
  }

  /// What a check takes into account besides the history.
  public struct Expectations: Sendable {
    /// How many attempts may begin within an interval.
    public struct StartLimit: Sendable {
      /// The greatest number of attempts.
      public var count: Int
      /// The length of the interval.
      public var interval: Duration
      /// The names of the tasks that the limit concerns; `nil` for all.
      public var names: Set<String>?

      /// Makes a limit.
      public init(_ count: Int, per interval: Duration, names: Set<String>? = nil) {
        self.count = count
        self.interval = interval
        self.names = names
      }
    }

    /// The limits that the queues have (``Promise/limitsHold``).
    public var limits: [StartLimit]
    /// Within what time after ``HistoryRecorder/recordEndOfFaults()`` everything ends; `nil` if
    /// that is not checked.
    ///
    /// Allow for leases that run out, and for the delays before retries.
    public var endsWithin: Duration?
    /// How far the recorders' clocks, and the store's own, may differ; by default not at all.
    ///
    /// Claims that run out too early by less than this are not found. Lines of two files are
    /// ordered by their dates all the same: keep the clocks of several machines in step.
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
