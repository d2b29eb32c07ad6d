/// Looks at a file, and finds what opening it would find.
///
/// If opening would refuse the file as damaged, the inspection finds all that is wrong with it, and
/// what can be saved.
struct JournalInspection {
  private(set) var report = JSONFileReport()
  /// The tasks; those with an unfinished attempt are interrupted.
  private(set) var table = TaskTable()
  /// Lines of a damaged file that are left out.
  private(set) var skipped = ProblemList()

  /// - Throws: Why nothing can be told about the file: it has another format, or a newer version.
  init(_ bytes: [UInt8]) throws(JournalProblem) { try self.init(JournalSource(bytes)) }

  /// Does what `init(_:)` does; of a damaged file, all bytes are read at once.
  init(_ source: JournalSource) throws(JournalProblem) {
    report.byteCount = source.count
    // Opening an empty file makes a new one of it.
    guard source.count > 0 else { return }
    let lines: JournalSource
    do { lines = try source.withoutReservation() } catch { throw .unreadable(error) }
    do throws(JournalProblem) {
      describe(try JournalReader.read(lines), lines.count)
    } catch {
      guard case .damaged(let line, let byte, let reason) = error else { throw error }
      describe(
        try JournalSalvage(try lines.readAll()),
        JSONFileReport.Problem(line: line, byte: byte, reason: reason)
      )
    }
    report.count(tasksOf: table)
  }

  private mutating func describe(_ contents: JournalContents, _ size: Int) {
    table = contents.table
    report.version = contents.version
    report.generation = contents.generation
    report.recordCount = Int(contents.nextSequence)
    report.tornByteCount = size - contents.goodSize
    report.wasClosed = contents.isSealed && contents.goodSize == report.byteCount
  }

  private mutating func describe(
    _ salvage: JournalSalvage,
    _ reason: JSONFileReport.Problem
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
    report.add(problems)
  }
}
