import Synchronization

/// The error that a file has no room for lines that add tasks.
///
/// All sizes are in bytes.
struct FileFull: Error {
  /// The size of the lines.
  let needed: Int
  let limit: Int
  /// The size that the file has when every accepted change is written.
  let size: Int
  /// About the size that the file would have if it were compacted then.
  let compactSize: Int

  /// Whether a compaction would make enough room, and is worth its cost.
  ///
  /// It is worth its cost if it rewrites at most three bytes for each byte that it frees.
  var isMendedByCompaction: Bool {
    compactSize + needed <= limit && size - compactSize >= size / 4
  }
}

// The limit of the file's size applies only to changes that add tasks, give them another payload or
// other tags, or set a larger value. A change that ends a task must be written, so that there is
// room again, and so must what a task remembers: its work is done.
extension JSONFileCore {
  /// Stores changes whose lines were made.
  ///
  /// If there is no room, this compacts the file first.
  ///
  /// - Returns: An outcome for each change; none if they depend on changes that were not stored
  ///   when the call was made, and are stored now.
  func store(
    _ batch: [TaskChange],
    _ lines: [JournalBody],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    // Other callers may take the room that a compaction frees, and its size is only an estimate.
    for _ in 0..<2 {
      do {
        return try await submit(batch, lines, durability)
      } catch let full as FileFull {
        guard full.isMendedByCompaction else { throw errors.full(full) }
        guard try await compactNow() else {
          throw errors.full(full, failedCompaction: file.withLock { $0?.failedCompaction })
        }
      }
    }
    do {
      return try await submit(batch, lines, durability)
    } catch let full as FileFull {
      throw errors.full(full)
    }
  }

  /// Returns the line of a change.
  ///
  /// - Throws: A ``JSONFileError`` if the line is longer than the format allows, or adds a task
  ///   that is larger than `maxTaskSize`; the error that encoding a payload throws.
  func line(_ change: TaskChange) throws -> JournalBody {
    let line = try JournalBody(.change(change))
    let limit = JournalBody.maxLength(of: change)
    guard line.bytes.count <= limit else {
      throw errors.taskTooLarge(line, limit: limit, "that of the format")
    }
    if case .insert = change, let limit = options.maxTaskSize, line.bytes.count > limit {
      throw errors.taskTooLarge(line, limit: limit, "its maxTaskSize")
    }
    return line
  }

  /// Refuses an update that would make its task too large.
  ///
  /// A task is too large if a compaction may not write it, or if it exceeds `maxTaskSize`. The
  /// parts that the update does not change count too.
  func checkSizes(of staged: [StagedChange], in table: TaskTable) throws {
    for change in staged {
      guard case .change(.update(_, let update), let slot) = change.effect,
        update.addsBytes
      else { continue }
      var record = table.entries[slot].record
      record.apply(update)
      _ = try line(.insert(record, onDuplicate: .keep))
    }
  }

  /// Stages changes, and queues their lines for the I/O thread.
  ///
  /// - Returns: What ``store(_:_:_:)`` returns.
  /// - Throws: a ``FileFull`` if there is no room for them.
  private func submit(
    _ batch: [TaskChange],
    _ lines: [JournalBody],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await waitForThread { continuation in
      submit(continuation) { state in
        let staged = state.table.stage(batch)
        if staged.contains(where: \.isUncertain), state.pipeline.hasChanges {
          // Nothing of such a batch is staged. It is answered behind what it depends on.
          return .lines(Submission(lines: [], caller: .changes([], durability, continuation)))
        }
        let submission = Submission(
          lines: state.table.lines(lines, of: staged),
          caller: .changes(staged, durability, continuation)
        )
        if let full = state.shortage(for: submission, options.maxFileSize) {
          submission.rollBack(&state.table)
          throw full
        }
        do { try checkSizes(of: staged, in: state.table) } catch {
          submission.rollBack(&state.table)
          throw error
        }
        for (line, change) in zip(lines, staged) {
          state.table.setByteCount(line.byteCount, of: change)
        }
        return .lines(submission)
      }
    }
  }

  /// Compacts the file, or waits for the compaction that is under way.
  ///
  /// - Returns: Whether a compaction was finished.
  private func compactNow() async throws -> Bool {
    try await waitForThread { continuation in
      let thread = Result {
        try state.withLock { state throws -> (any JobThread)? in
          guard try isOpen(state.phase) else { throw errors.closed }
          state.compactionWaiters.append(continuation)
          return state.thread
        }
      }
      switch thread {
      case .success(let thread): thread?.add { self.compactIfDue() }
      case .failure(let error): continuation.resume(throwing: error)
      }
    }
  }

  /// Resumes the callers that wait for a compaction: it has ended, or there is none.
  func tellCompactionWaiters(_ result: Result<Bool, any Error>) {
    let waiters = state.withLock { state in
      defer { state.compactionWaiters = [] }
      return state.compactionWaiters
    }
    for waiter in waiters { waiter.resume(with: result) }
  }

  /// Notes how large the file is, on the I/O thread.
  func noteSize() {
    guard options.maxFileSize != nil,
      let size = file.withLock({ $0.map { $0.journal.size + $0.journal.owedByteCount } })
    else { return }
    state.withLock { $0.size = $0.pipeline.pending.reduce(size) { $0 + $1.byteCount } }
  }
}

extension JSONFileCore.State {
  /// Returns why there is no room for a submission, or `nil` if there is room.
  ///
  /// What the submission stages has no size in the table yet.
  func shortage(for submission: Submission, _ limit: Int?) -> FileFull? {
    guard let limit, submission.addsTasks, size + submission.byteCount > limit else { return nil }
    let excess = underestimate.excess(over: table.byteCount + table.values.byteCount)
    return FileFull(
      needed: submission.byteCount,
      limit: limit,
      size: size,
      compactSize: table.compactSize + excess
    )
  }
}

extension TaskTable {
  /// Returns the lines of the changes that are kept, with what staging has decided about them.
  fileprivate func lines(_ lines: [JournalBody], of staged: [StagedChange]) -> [JournalBody] {
    let arePlain = staged.allSatisfy { $0.isKept && decision(on: $0) == nil }
    if arePlain { return lines }
    return zip(lines, staged).filter { $1.isKept }.map { line, change in
      decision(on: change).map(line.adding) ?? line
    }
  }
}

extension Submission {
  /// How many bytes the lines take, at most.
  var byteCount: Int { lines.reduce(0) { $0 + $1.byteCount } }

  /// Whether the changes add a task, give one another payload or other tags, or set a larger value.
  fileprivate var addsTasks: Bool {
    guard case .changes(let staged, _, _) = caller else { return false }
    return staged.contains { change in
      switch change.effect {
      case .insertion, .replacement: true
      case .change(.update(_, let update), _): update.addsBytes
      case .value(_, let grows): grows
      // The work is done, and would be done again if nothing remembered it.
      case .memory: false
      case .change, .supersession, .broadChange, nil: false
      }
    }
  }
}

extension TaskUpdate {
  /// Whether it gives a task another payload or other tags, which may be larger.
  fileprivate var addsBytes: Bool { payload != nil || tags != nil }
}
