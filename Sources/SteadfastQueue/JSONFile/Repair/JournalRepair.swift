import SystemFoundation

/// Copies a damaged file, and replaces it with a new file that contains everything that can be
/// read.
///
/// The copy is durable before the new file replaces the damaged one, in one step.
struct JournalRepair {
  /// The error of a repair that has replaced the damaged file, but that a power cut may undo.
  struct PerhapsUndone: Error {
    let reason: SystemCallError
    /// The number in the name of the copy.
    let copy: Int
  }

  let report: JSONFileReport
  let skipped: ProblemList
  /// The number in the name of the copy; `nil` if there was nothing to repair.
  let copy: Int?

  /// Repairs the journal, if it is damaged; returns `nil` if there is no journal.
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

  /// Copies the file, replaces it with what could be read, and returns the number in the name of
  /// the copy.
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
      // Everything is already durable, so an error here does no harm. The seal only records that
      // the file was closed.
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

/// A report about the contents of a queue's file, and about its problems.
public struct JSONFileReport: Sendable, Hashable {
  /// A problem of a file: a line that is bad, missing or in the wrong position, or a difference
  /// from the store.
  public struct Problem: Sendable, Hashable, CustomStringConvertible {
    /// The number of the line, from 1; `nil` if the problem does not concern a single line.
    public let line: Int?
    /// The offset in bytes of the start of the line; `nil` if ``line`` is `nil`.
    public let byte: Int?
    /// The problem, in plain English.
    ///
    /// This contains no payload.
    public let reason: String

    /// The line, the byte and the reason.
    public var description: String {
      guard let line, let byte else { return reason }
      return "line \(line), byte \(byte): \(reason)"
    }
  }

  /// The version of the format; `nil` if the header can't be read.
  public internal(set) var version: Int?
  /// The number of times that the whole file was written; `nil` if the header can't be read.
  ///
  /// It is 1 for a new file, and each compaction adds 1.
  public internal(set) var generation: Int?
  /// The size of the file, in bytes.
  public internal(set) var byteCount = 0
  /// The number of readable lines.
  public internal(set) var recordCount = 0
  /// The number of lines that are missing or unreadable, as far as that can be known.
  ///
  /// Every line has a sequence number. This is the count of numbers that no readable line has,
  /// although a later line has a greater number. It is 0 unless the file is damaged. Lines that
  /// were lost from the end of the file can't be detected.
  public internal(set) var lostRecordCount = 0
  /// The number of tasks in each state; states without tasks are not listed.
  ///
  /// In a report on a file that no store has open, these are the tasks that opening the file would
  /// find or, if the file is damaged, the tasks that a repair would save. In a report of an open
  /// store, these are the store's tasks.
  public internal(set) var counts: [TaskState: Int] = [:]
  /// Whether the file was closed properly, instead of being left open by a crash.
  public internal(set) var wasClosed = false
  /// The number of bytes at the end of the file that opening removes, because a crash has left
  /// them.
  ///
  /// These bytes start with an unreadable line or incomplete changes, and no later line shows that
  /// they had been flushed. They may also be the result of damage to the lines that were written
  /// last, which can't be distinguished from a crash (``JSONFileStore/Flushing``).
  ///
  /// The bytes count as a problem only if a store has the file open. The number is 0 if the file is
  /// damaged in another way. Zeros that reserve space (``JSONFileStore/Options/reservedSpace``)
  /// don't count.
  public internal(set) var tornByteCount = 0
  /// The first problems, in the order of lines; at most a thousand.
  public internal(set) var problems: [Problem] = []
  /// The number of problems, including those that ``problems`` does not contain.
  public internal(set) var problemCount = 0

  /// Whether no problem was found.
  ///
  /// If no store has the file open, a sound file can be opened, unless something else prevents
  /// that, such as its permissions. Opening removes ``tornByteCount`` bytes. Other lines that were
  /// lost from the end of the file can't be detected. If a store has the file open, a sound file
  /// matches the store's tasks and values.
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
  /// The results, in plain English.
  ///
  /// One line summarizes the file, and one line describes each of the first ten problems.
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

/// Finds the tasks that opening a file would find, without changing the file.
///
/// If opening would refuse the file because of damage, the inspection finds all problems, and the
/// tasks that can be saved.
struct JournalInspection {
  private(set) var report = JSONFileReport()
  /// The tasks, of which those whose attempt has not ended are interrupted.
  private(set) var table = TaskTable()
  /// The lines of a damaged file that a repair omits.
  private(set) var skipped = ProblemList()

  /// - Throws: The reason that the file can't be inspected: it has another or a newer format, or
  ///   reading it has failed.
  init(_ bytes: [UInt8]) throws(JournalProblem) { try self.init(JournalSource(bytes)) }

  /// If the file is damaged, all its bytes are read into memory.
  init(_ source: JournalSource) throws(JournalProblem) {
    report.byteCount = source.count
    // An empty file has no problems: opening it writes a header.
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

/// A list that counts problems, and stores the first 1000 of them.
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
  /// No line may have problems in both lists.
  func merged(with other: ProblemList) -> ProblemList {
    var merged = self
    merged.count += other.count
    merged.first = (first + other.first).sorted { ($0.line ?? .max) < ($1.line ?? .max) }
    if merged.first.count > Self.limit {
      merged.first.removeLast(merged.first.count - Self.limit)
    }
    return merged
  }

  /// Inserts a problem in the order of lines, unless the line already has one.
  mutating func addIfNew(_ problem: JSONFileReport.Problem) {
    guard !first.contains(where: { $0.line == problem.line }) else { return }
    var list = ProblemList()
    list.add(problem)
    self = list.merged(with: self)
  }
}
