/// What a queue's file holds, and what is wrong with it.
public struct JSONFileReport: Sendable, Hashable {
  /// Something in a file that is not as it was written.
  public struct Problem: Sendable, Hashable, CustomStringConvertible {
    /// The number of the line, from 1; `nil` if the problem concerns the whole file, or a task.
    public let line: Int?
    /// The offset in bytes at which the line begins; `nil` if ``line`` is `nil`.
    public let byte: Int?
    /// What is wrong, for a person to read.
    ///
    /// The text shows no payload.
    public let reason: String

    /// The place and the reason.
    public var description: String {
      guard let line, let byte else { return reason }
      return "line \(line), byte \(byte): \(reason)"
    }
  }

  /// The version of the format; `nil` if the header can't be read.
  public internal(set) var version: Int?
  /// How many times the file was written as a whole; `nil` if the header can't be read.
  ///
  /// The count includes the first time, and each compaction adds one.
  public internal(set) var generation: Int?
  /// The size of the file, in bytes.
  public internal(set) var byteCount = 0
  /// How many lines can be read.
  public internal(set) var recordCount = 0
  /// How many lines are known to be missing or unreadable.
  ///
  /// These are the sequence numbers that no line has, although later ones are there. The count is
  /// zero unless the file is damaged. Lines that were lost from the end can't be known.
  public internal(set) var lostRecordCount = 0
  /// How many tasks the file holds, by state; a state without tasks is not listed.
  ///
  /// If no store has the file open, these are the tasks that opening it would find or, if the file
  /// is damaged, those that a repair would save.
  public internal(set) var counts: [TaskState: Int] = [:]
  /// Whether the file was closed properly, and not left by a crash.
  public internal(set) var wasClosed = false
  /// How many bytes at the end of the file are torn.
  ///
  /// Torn bytes begin with what can't be read, or with a batch that has no end, and no line says
  /// that they were flushed. A crash leaves such an end, and so does damage to what was written
  /// last. The two can't be told apart (``JSONFileStore/Flushing``).
  ///
  /// Opening the file cuts these bytes off. They are no problem, unless a store has the file open.
  /// The count is zero if the file is damaged in another way. Zeros that reserve space
  /// (``JSONFileStore/Options/reservedSpace``) don't count.
  public internal(set) var tornByteCount = 0
  /// The problems, in the order of lines; at most the first thousand of them.
  public internal(set) var problems: [Problem] = []
  /// How many problems there are.
  public internal(set) var problemCount = 0

  /// Whether no problem was found.
  ///
  /// If no store has the file open, a sound file can be opened, unless something else is in the
  /// way: permissions, for example, or a folder at its path plus `.new`. ``tornByteCount`` bytes
  /// are cut off then, and what else was lost from its end can't be known. If a store has the file
  /// open, a sound file says what the store holds.
  public var isSound: Bool { problemCount == 0 }
}

extension JSONFileReport {
  mutating func count(tasksOf table: TaskTable) {
    for state in TaskState.allCases {
      let count = table.count(matching: TaskFilter(states: [state]))
      counts[state] = count > 0 ? count : nil
    }
  }

  mutating func add(_ list: ProblemList) {
    problems = list.first
    problemCount = list.count
  }
}

extension JSONFileReport: CustomStringConvertible {
  /// The findings, for a person to read.
  ///
  /// The text has one line for the file as a whole, and one for each of the first ten problems.
  public var description: String {
    var parts = ["\(recordCount) good line\(recordCount == 1 ? "" : "s")"]
    if lostRecordCount > 0 { parts.append("\(lostRecordCount) lost") }
    if tornByteCount > 0 { parts.append("\(tornByteCount) bytes torn at the end") }
    let tasks = TaskState.allCases.compactMap { state in
      counts[state].map { "\($0) \(state.rawValue)" }
    }
    let summary =
      "\(isSound ? "sound" : "damaged"), \(byteCount) bytes: \(parts.joined(separator: ", ")); tasks: "
      + (tasks.isEmpty ? "none" : tasks.joined(separator: ", "))
    let lines = [summary] + problems.prefix(10).map(\.description)
    let rest = problemCount - (lines.count - 1)
    return lines.joined(separator: "\n") + (rest > 0 ? "\nand \(rest) problems more" : "")
  }
}
