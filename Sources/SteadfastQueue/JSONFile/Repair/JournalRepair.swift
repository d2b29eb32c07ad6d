import SystemFoundation

/// Copies a damaged file, and replaces it with a new file of everything that can be read.
///
/// The old file is unchanged until the new one takes its name, in one step. The copy is durable
/// before that.
struct JournalRepair {
  /// The new file has the name, but a power cut may restore the old one.
  struct PerhapsUndone: Error {
    let reason: SystemCallError
    /// The number of the copy.
    let copy: Int
  }

  let report: JSONFileReport
  let skipped: ProblemList
  /// The number of the copy; `nil` if there were no problems.
  let copy: Int?

  /// Repairs the journal; returns `nil` if there is no file.
  ///
  /// - Throws: ``PerhapsUndone`` if the file was replaced, but a power cut may undo that. After any
  ///   other error, the file is unchanged.
  static func repair(_ storage: any JournalStorage, at date: Date) throws -> JournalRepair? {
    guard let (file, bytes) = try storage.readJournal() else { return nil }
    defer { file.close() }
    let inspection = try JournalInspection(bytes)
    let copy =
      inspection.report.isSound
      ? nil : try replace(file, containing: bytes, with: inspection, in: storage, at: date)
    return JournalRepair(report: inspection.report, skipped: inspection.skipped, copy: copy)
  }

  /// Replaces the file with one of everything that can be read, and returns the copy's number.
  private static func replace(
    _ file: any JournalFile,
    containing bytes: [UInt8],
    with inspection: JournalInspection,
    in storage: any JournalStorage,
    at date: Date
  ) throws -> Int {
    let (copy, isNew) = try BackupCopy.makeCopy(
      of: JournalSource(bytes),
      range: bytes.indices,
      named: JournalFileName.copy,
      in: storage
    )
    let old = Journal(
      file,
      JournalContents(generation: inspection.report.generation ?? 0, goodSize: bytes.count)
    )
    do {
      var compaction = try Compaction(
        of: old,
        snapshot: inspection.table.snapshot,
        in: storage
      )
      var new = try compaction.finish(old, at: date)
      // Everything is already durable. The seal only makes the file look as if it was closed.
      try? new.close()
      return copy
    } catch Compaction.Failure.poisoned(let error) {
      throw PerhapsUndone(reason: error, copy: copy)
    } catch {
      try? storage.removeUnlessReplaced(.replacement)
      if isNew { try? storage.removeUnlessReplaced(.copy(copy)) }
      throw cause(of: error)
    }
  }

  private static func cause(of error: any Error) -> any Error {
    switch error {
    case Compaction.Failure.refused(let error): cause(of: error)
    case Journal.Failure.refused(let error), Journal.Failure.poisoned(let error): error
    case FileOpeningError.systemCall(let error): error
    default: error
    }
  }
}

/// The contents of a queue's file, and its problems.
public struct JSONFileReport: Sendable, Hashable {
  /// A difference between a file and what was written to it.
  public struct Problem: Sendable, Hashable, CustomStringConvertible {
    /// The number of the line, from 1; `nil` if the problem concerns the whole file, or a task.
    public let line: Int?
    /// The offset in bytes of the start of the line; `nil` if ``line`` is `nil`.
    public let byte: Int?
    /// The problem, for people to read.
    ///
    /// The text contains no payload.
    public let reason: String

    /// The line, the byte and the reason.
    public var description: String {
      guard let line, let byte else { return reason }
      return "line \(line), byte \(byte): \(reason)"
    }
  }

  /// The version of the format; `nil` if the header can't be read.
  public internal(set) var version: Int?
  /// The number of times that the file was written as a whole; `nil` if the header can't be read.
  ///
  /// The count includes the first time, and each compaction increments it.
  public internal(set) var generation: Int?
  /// The size of the file, in bytes.
  public internal(set) var byteCount = 0
  /// The number of readable lines.
  public internal(set) var recordCount = 0
  /// The number of lines that are known to be missing or unreadable.
  ///
  /// These are the sequence numbers that no line has, although later numbers exist. The count is
  /// zero unless the file is damaged. Lines that were lost from the end can't be detected.
  public internal(set) var lostRecordCount = 0
  /// The number of tasks in the file, by state; a state without tasks is not listed.
  ///
  /// If no store has the file open, these are the tasks that opening it would find or, if the file
  /// is damaged, those that a repair would save.
  public internal(set) var counts: [TaskState: Int] = [:]
  /// Whether the file was closed properly, and not left open by a crash.
  public internal(set) var wasClosed = false
  /// The number of torn bytes at the end of the file.
  ///
  /// Torn bytes start with an unreadable line or an incomplete batch, and no line shows that they
  /// were flushed. A crash leaves such an end, and so does damage to the lines that were written
  /// last. The two can't be distinguished (``JSONFileStore/Flushing``).
  ///
  /// Opening the file removes these bytes. They only count as a problem if a store has the file
  /// open. The count is zero if the file is damaged in another way. Zeros that reserve space
  /// (``JSONFileStore/Options/reservedSpace``) don't count.
  public internal(set) var tornByteCount = 0
  /// The problems, in the order of lines; at most the first thousand of them.
  public internal(set) var problems: [Problem] = []
  /// The number of problems.
  public internal(set) var problemCount = 0

  /// Whether no problem was found.
  ///
  /// If no store has the file open, a sound file can be opened, unless something else prevents it:
  /// permissions, for example, or a folder at its path plus `.new`. Opening then removes
  /// ``tornByteCount`` bytes. Anything else that was lost from the end can't be detected. If a
  /// store has the file open, a sound file matches the contents of the store.
  public var isSound: Bool { problemCount == 0 }
}

extension JSONFileReport {
  mutating func setCounts(from table: TaskTable) {
    for state in TaskState.allCases {
      let count = table.count(matching: TaskFilter(states: [state]))
      counts[state] = count > 0 ? count : nil
    }
  }

  mutating func setProblems(to list: ProblemList) {
    problems = list.first
    problemCount = list.count
  }
}

extension JSONFileReport: CustomStringConvertible {
  /// The results, for people to read.
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
    return lines.joined(separator: "\n") + (rest > 0 ? "\nand \(rest) more problems" : "")
  }
}

/// Inspects a file, and finds what opening it would find.
///
/// If opening would refuse the file as damaged, the inspection finds all of its problems, and
/// everything that can be saved.
struct JournalInspection {
  private(set) var report = JSONFileReport()
  /// The tasks; those with an unfinished attempt are interrupted.
  private(set) var table = TaskTable()
  /// The lines of a damaged file that are omitted.
  private(set) var skipped = ProblemList()

  /// - Throws: The reason why the file can't be inspected: it has another or a newer format.
  init(_ bytes: [UInt8]) throws(JournalProblem) { try self.init(JournalSource(bytes)) }

  /// Does the same as `init(_:)`; of a damaged file, all bytes are read at once.
  init(_ source: JournalSource) throws(JournalProblem) {
    report.byteCount = source.count
    // Opening an empty file turns it into a new queue's file.
    guard source.count > 0 else { return }
    let lines: JournalSource
    do { lines = try source.withoutReservation() } catch { throw .unreadable(error) }
    do throws(JournalProblem) {
      adopt(try JournalReader.read(lines), size: lines.count)
    } catch {
      guard case .damaged(let line, let byte, let reason) = error else { throw error }
      adopt(
        try JournalSalvage(try lines.readAll()),
        refusedBecause: JSONFileReport.Problem(line: line, byte: byte, reason: reason)
      )
    }
    report.setCounts(from: table)
  }

  private mutating func adopt(_ contents: JournalContents, size: Int) {
    table = contents.table
    report.version = contents.version
    report.generation = contents.generation
    report.recordCount = Int(contents.nextSequence)
    report.tornByteCount = size - contents.goodSize
    report.wasClosed = contents.isSealed && contents.goodSize == report.byteCount
  }

  private mutating func adopt(
    _ salvage: JournalSalvage,
    refusedBecause reason: JSONFileReport.Problem
  ) {
    table = salvage.table
    skipped = salvage.skipped
    report.version = salvage.version
    report.generation = salvage.generation
    report.recordCount = salvage.readableLineCount
    report.lostRecordCount = Int(clamping: salvage.lostLineCount)
    report.wasClosed = salvage.isSealed
    var problems = salvage.skipped.merged(with: salvage.misplaced)
    problems.addIfNew(reason)
    report.setProblems(to: problems)
  }
}

/// Counts problems, and stores the first 1000 of them.
struct ProblemList: Sendable {
  private static var limit: Int { 1000 }

  private(set) var count = 0
  private(set) var first: [JSONFileReport.Problem] = []

  mutating func add(_ reason: String, line: Int? = nil, byte: Int? = nil) {
    add(JSONFileReport.Problem(line: line, byte: byte, reason: reason))
  }

  mutating func add(_ problem: JSONFileReport.Problem) {
    count += 1
    if first.count < Self.limit { first.append(problem) }
  }

  /// Returns the problems of both lists, in the order of lines.
  ///
  /// No line may have a problem in both lists.
  func merged(with other: ProblemList) -> ProblemList {
    var merged = self
    merged.count += other.count
    merged.first = (first + other.first).sorted { ($0.line ?? .max) < ($1.line ?? .max) }
    if merged.first.count > Self.limit {
      merged.first.removeLast(merged.first.count - Self.limit)
    }
    return merged
  }

  /// Adds a problem in the order of lines, unless its line already has one.
  mutating func addIfNew(_ problem: JSONFileReport.Problem) {
    guard !first.contains(where: { $0.line == problem.line }) else { return }
    var list = ProblemList()
    list.add(problem)
    self = list.merged(with: self)
  }
}
