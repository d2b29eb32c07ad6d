import Synchronization

extension JSONFileCore {
  func verify() async throws -> JSONFileReport {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { self.verifyFile(continuation) }
    }
  }

  /// Compares the file with the store, on the I/O thread, when nothing is being flushed.
  ///
  /// During this nothing is written, and everything that was written is committed.
  func verifyFile(_ continuation: CheckedContinuation<JSONFileReport, any Error>) {
    if state.withLock({ $0.pipeline.postponeWhileFlushing(.verify(continuation)) }) { return }
    continuation.resume(with: Result { try compareFile() })
  }

  private func compareFile() throws -> JSONFileReport {
    let (snapshot, claimed) = try state.withLock { state in
      guard try isOpen(state.phase) else { throw errors.closed }
      return (state.table.snapshot, state.claimedAndUnwritten)
    }
    return try errors.translating {
      try file.withLock { file in
        guard let file else { throw errors.closed }
        return try Verification(of: file, snapshot, claimed: claimed).report
      }
    }
  }
}

/// Compares a file with what its store holds.
private struct Verification {
  private(set) var report = JSONFileReport()
  private var problems = ProblemList()
  private let held: TaskTable.Snapshot
  private let claimed: Set<TaskID>

  init(
    of file: JSONFileCore.OpenFile,
    _ held: TaskTable.Snapshot,
    claimed: Set<TaskID>
  ) throws {
    self.held = held
    self.claimed = claimed
    report.generation = file.journal.generation
    if case .elsewhere = try file.storage.place(of: .journal) {
      problems.add("the file was deleted, moved or replaced: its tasks can't be found by its name")
    }
    let whole = file.journal.source(try file.journal.sizeInFile())
    report.byteCount = whole.count
    if whole.count != file.journal.fileSize {
      problems.add("the file has \(whole.count) bytes, and \(file.journal.fileSize) were written")
    }
    try compare(try whole.withoutReservation(), owesInterruption: file.journal.owesInterruption)
    countTasks()
    report.add(problems)
  }

  private mutating func compare(_ source: JournalSource, owesInterruption: Bool) throws {
    do throws(JournalProblem) {
      var contents = try JournalReader.readAsWritten(source)
      // The file does not say that tasks were interrupted yet. The next write says so first.
      if owesInterruption { contents.table.interruptLeased() }
      report.version = contents.version
      report.recordCount = Int(contents.nextSequence)
      report.tornByteCount = source.count - contents.goodSize
      if report.tornByteCount > 0 {
        problems.add("the last \(report.tornByteCount) bytes can't be read")
      }
      try compare(contents.table)
      compare(contents.table.values)
    } catch {
      try describe(try source.read(0..<source.count), error)
    }
  }

  /// Adds everything that is wrong with a file that could not be opened.
  private mutating func describe(_ bytes: [UInt8], _ problem: JournalProblem) throws {
    do throws(JournalProblem) {
      let found = try JournalInspection(bytes).report
      report.version = found.version
      report.recordCount = found.recordCount
      report.lostRecordCount = found.lostRecordCount
      for problem in found.problems { problems.add(problem) }
    } catch {
      problems.add("the file is not what was written: \(problem)")
    }
  }

  // MARK: Values

  private mutating func compare(_ file: StoredValues) {
    for name in held.values.union(file.packed).map(\.name).sorted() {
      let index = held.values.firstIndex(of: PackedValue(named: name))
      guard index.map({ held.values[$0].value.bytes }) != file[name] else { continue }
      problems.add(
        "the file says something else of the value '\(name.prefix(80))' than the store holds"
      )
    }
  }

  // MARK: Tasks

  private mutating func compare(_ file: TaskTable) throws(JournalProblem) {
    var count = 0
    let entries = held.tasks
    for slot in 0..<entries.endSlot where entries[slot].place != .staged {
      count += 1
      let id = entries[slot].record.id
      guard let other = file.slot(of: id) else {
        problems.add("task \(id) is not in the file")
        continue
      }
      if body(of: entries[slot]) != body(of: file.entries[other]) {
        problems.add("the file says something else of task \(id) than the store holds")
      } else if held.memories[slot] != file.memories[other] {
        problems.add(
          "the file says something else of what task \(id) remembers than the store holds"
        )
      }
    }
    guard count != file.entries.count else { return }
    let known = Set(entries.committedIDs)
    for id in file.entries.slab.committedIDs.sorted() where !known.contains(id) {
      problems.add("task \(id) is in the file alone")
    }
  }

  /// Returns everything that a file says of a task, except for its place in line.
  private func body(of entry: TaskTable.Entry) -> [UInt8]? {
    var record = entry.record
    if claimed.contains(record.id) { record.state = .waiting }
    let task = KeptTask(record: record, position: 0, hasLostKey: entry.isKeyless)
    return try? JournalBody(.task(task)).bytes
  }

  private mutating func countTasks() {
    let entries = held.tasks
    for slot in 0..<entries.endSlot where entries[slot].place != .staged {
      report.counts[entries[slot].record.state, default: 0] += 1
    }
  }
}

extension Slab<TaskTable.Entry> {
  /// The IDs of the tasks whose insertion is committed.
  fileprivate var committedIDs: [TaskID] {
    (0..<endSlot).compactMap { self[$0].place == .staged ? nil : self[$0].record.id }
  }
}
