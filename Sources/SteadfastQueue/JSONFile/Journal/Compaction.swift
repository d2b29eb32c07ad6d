#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes a file anew without what is dead, a step at a time, beside ordinary work.
///
/// First the tasks as they stood at its beginning, from a copy that shares memory with the table
/// until one of the two changes; then what the journal has taken in since; then, with nothing left
/// to copy, it takes the journal's place. Until that moment the journal is as it was: a failure
/// costs nothing but the temporary file. Each line after the last flush says so, as in any journal.
struct Compaction {
  /// What a compaction has come to.
  enum Progress {
    case unfinished
    /// The new journal is in its place.
    case finished(Journal)
  }

  /// Why it was given up.
  enum Failure: Error {
    /// Nothing has changed.
    case refused(because: any Error)
    /// The new file has the journal's name, but perhaps not for long.
    case poisoned(SystemCallError)

    /// What has failed.
    var cause: any Error {
      switch self {
      case .refused(let error): error
      case .poisoned(let error): error
      }
    }
  }

  /// The journal does not read as it was written, or a line could not be read back.
  struct Unreadable: Error {
    let description: String
  }

  private let storage: any JournalStorage
  private let policy: CompactionPolicy
  /// Pages that were copied are given up: to free all of them at the end would take long.
  private var tasks: Slab<TaskTable.Entry>
  /// Tasks whose attempts are not in the journal yet; what it says later is copied later.
  private let unwritten: Set<TaskID>
  /// From here on tasks are still to be copied.
  private var slot = 0
  /// How far the journal was copied.
  private var copied: Int
  /// How large the journal was at the last step.
  private var seenSize: Int
  private var replacement: Journal
  private var unflushed = 0

  /// Begins to write a file anew, of tasks of which those are committed that the journal has; those
  /// that were claimed are leased, though the journal does not say so yet.
  init(
    of journal: Journal,
    tasks: Slab<TaskTable.Entry>,
    claimed: Set<TaskID> = [],
    in storage: any JournalStorage,
    _ policy: CompactionPolicy = CompactionPolicy()
  ) throws(Failure) {
    self.storage = storage
    self.policy = policy
    self.tasks = tasks
    unwritten = claimed
    copied = journal.size
    seenSize = journal.size
    // A number that somebody else wrote may be the last one.
    let generation = journal.generation < .max ? journal.generation + 1 : journal.generation
    do {
      replacement = try Journal.makeReplacement(
        in: storage,
        generation: generation,
        beside: journal.source
      )
    } catch {
      throw .refused(because: error)
    }
  }

  /// Does a step.
  mutating func advance(_ journal: Journal, at date: Date) throws(Failure) -> Progress {
    do {
      if tasks.firstUsedSlot(from: slot) != nil {
        try copyTasks()
        return .unfinished
      }
      try copyLines(of: journal)
      guard copied == journal.size else { return .unfinished }
      try replacement.synchronize()
      try replacement.append([
        [JournalBody(.compacted(at: date, bytesBefore: journal.size))]
      ])
      try replacement.synchronize()
      // When the file has its new name, nothing may be missing that makes the name durable.
      try storage.openFolder()
      // Another file that somebody has put there is not replaced, nor one that he has written.
      try storage.checkPlace(of: journal)
      try storage.rename(.replacement, to: .journal)
    } catch {
      abandon()
      throw .refused(because: error)
    }
    do {
      try storage.synchronizeFolder()
    } catch {
      replacement.abandon()
      throw .poisoned(error)
    }
    replacement.noteCompaction(at: date, bytesBefore: journal.size)
    return .finished(replacement)
  }

  /// Does all steps that are left, of a journal to which nothing is added meanwhile; returns the one
  /// that has taken its place.
  @discardableResult
  mutating func finish(_ journal: Journal, at date: Date) throws(Failure) -> Journal {
    while true {
      switch try advance(journal, at: date) {
      case .unfinished: continue
      case .finished(let replacement): return replacement
      }
    }
  }

  /// Gives the compaction up, and removes what it has written.
  func abandon() {
    replacement.abandon()
    // What can't be removed now is removed by the next opening.
    try? storage.removeOwn(.replacement)
  }

  // MARK: Steps

  private mutating func copyTasks() throws {
    var batches: [[JournalBody]] = []
    var size = 0
    var count = 0
    while count < policy.stepTasks, size < policy.stepSize,
      let next = tasks.firstUsedSlot(from: slot)
    {
      giveUpPages(before: next)
      slot = next + 1
      count += 1
      guard tasks[next].place != .staged else { continue }
      batches.append(try lines(of: tasks[next]))
      size += batches[batches.count - 1].reduce(0) { $0 + $1.bytes.count + 64 }
    }
    try append(batches)
  }

  /// Gives up the page of the last task if the next one is in another.
  private mutating func giveUpPages(before next: Int) {
    guard slot > 0 else { return }
    let page = (slot - 1) / Slab<TaskTable.Entry>.pageSize
    if next / Slab<TaskTable.Entry>.pageSize > page { tasks.removePage(page) }
  }

  private func lines(of entry: TaskTable.Entry) throws -> [JournalBody] {
    var task = KeptTask(
      record: entry.record,
      // Only numbers that somebody else wrote may lead beyond it.
      position: min(entry.position, KeptTask.maxPosition),
      hasLostKey: entry.hasLostKey
    )
    guard case .leased = entry.place else { return [try line(of: task)] }
    task.record.state = .waiting
    let line = try line(of: task)
    return unwritten.contains(task.record.id)
      ? [line] : [line, JournalBody(beginningOf: task.record.id)]
  }

  /// A task's line holds what came in several lines, and may be too long to be read though none of
  /// those was.
  private func line(of task: KeptTask) throws -> JournalBody {
    let line = try JournalBody(.task(task))
    guard line.byteCount <= JournalLine.maxLength else {
      throw Unreadable(description: "the line of task \(task.record.id) would be too long")
    }
    return line
  }

  /// Copies lines that the journal has taken in meanwhile, whole batches of them.
  ///
  /// Twice as many bytes as it has taken in since the last step, if need be, so that there is an end.
  private mutating func copyLines(of journal: Journal) throws {
    var count = max(policy.stepSize, 2 * (journal.size - seenSize))
    seenSize = journal.size
    while copied < journal.size {
      let bytes = try journal.read(min(count, journal.size - copied), at: copied)
      let (batches, length) = try Self.batches(in: bytes)
      if length > 0 {
        try append(batches)
        copied += length
        return
      }
      // One batch is larger than a step.
      guard bytes.count == count else {
        throw Unreadable(description: "the file ends where a line was written")
      }
      count *= 2
    }
  }

  /// The whole batches at the beginning of these bytes, and how many bytes they are.
  private static func batches(in bytes: [UInt8]) throws -> ([[JournalBody]], length: Int) {
    var batches: [[JournalBody]] = []
    var batch: [JournalBody] = []
    var position = 0
    var length = 0
    while let end = bytes.lineFeed(from: position) {
      guard let line = JournalLine(bytes, position..<end) else {
        throw Unreadable(description: "a line is not as it was written")
      }
      batch.append(JournalBody(bytes[line.body]))
      position = end + 1
      if !line.isContinued {
        batches.append(batch)
        batch = []
        length = position
      }
    }
    return (batches, length)
  }

  private mutating func append(_ batches: [[JournalBody]]) throws {
    let size = replacement.size
    try replacement.append(batches)
    unflushed += replacement.size - size
    guard unflushed >= policy.flushSize else { return }
    try replacement.synchronize()
    unflushed = 0
  }
}
