#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes a file again without its obsolete lines, in steps between which other work is done.
///
/// A compaction has three phases. First, it writes the tasks and the values as they were when it
/// began, from a copy that shares memory with the table until one of the two changes. Then it
/// copies the lines that were added to the journal since. When nothing is left to copy, the new
/// file takes the journal's place. The journal is unchanged until that moment, so a failure costs
/// nothing but the temporary file. As in any journal, each line says up to which line the file was
/// flushed when the line was written.
struct Compaction {
  /// How far a compaction is.
  enum Progress {
    case unfinished
    /// The new journal is in its place.
    case finished(Journal)
  }

  /// Why a compaction was given up.
  enum Failure: Error {
    /// Nothing has changed.
    case refused(because: any Error)
    /// The new file has the journal's name, but a power cut may undo that.
    case poisoned(SystemCallError)

    /// The error that caused the failure.
    var cause: any Error {
      switch self {
      case .refused(let error): error
      case .poisoned(let error): error
      }
    }
  }

  /// The journal does not read as it was written, or a line would be too long to be read back.
  struct Unreadable: Error {
    let description: String
  }

  private let storage: any JournalStorage
  private let policy: CompactionPolicy
  /// The tasks to copy.
  ///
  /// The memory of copied pages is freed on the way: to free all of it at the end would take long.
  private var tasks: Slab<TaskTable.Entry>
  /// What these tasks remember.
  private let memories: TaskMemories
  /// The values to copy, the next one last.
  private var values: [PackedValue]
  /// Tasks whose attempts are not in the journal yet.
  ///
  /// What the journal says of them later is copied later.
  private let unwritten: Set<TaskID>
  /// The first slot that may hold a task that is not copied yet.
  private var slot = 0
  /// The offset up to which the journal was copied.
  private var copied: Int
  /// The size of the journal at the last step.
  private var seenSize: Int
  private var replacement: Journal
  private var unflushed = 0
  /// What the lines of the tasks and of the values take beyond their estimate.
  private(set) var underestimate = Underestimate()

  /// Begins a compaction of a journal.
  ///
  /// Of the snapshot, exactly that is committed which the journal has. The tasks in `claimed` are
  /// leased, although the journal does not say so yet.
  init(
    of journal: Journal,
    snapshot: TaskTable.Snapshot,
    claimed: Set<TaskID> = [],
    in storage: any JournalStorage,
    _ policy: CompactionPolicy = CompactionPolicy()
  ) throws(Failure) {
    self.storage = storage
    self.policy = policy
    tasks = snapshot.tasks
    memories = snapshot.memories
    // In an order that is the same each time.
    values = snapshot.values.sorted { $1.nameBytes.lexicographicallyPrecedes($0.nameBytes) }
    unwritten = claimed
    copied = journal.size
    seenSize = journal.size
    // Only a number that another program wrote can be the last one.
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

  /// Performs one step.
  mutating func advance(_ journal: Journal, at date: Date) throws(Failure) -> Progress {
    do {
      if tasks.firstUsedSlot(from: slot) != nil {
        try copyTasks()
        seenSize = journal.size
        return .unfinished
      }
      if !values.isEmpty {
        try copyValues()
        seenSize = journal.size
        return .unfinished
      }
      try copyLines(of: journal)
      guard copied == journal.size else { return .unfinished }
      try replacement.synchronize()
      try replacement.append([
        [JournalBody(.compacted(at: date, bytesBefore: journal.size))]
      ])
      try replacement.synchronize()
      // Once the file has its new name, nothing may be missing that makes the name durable.
      try storage.openFolder()
      // A file that another program put there, or wrote to, is not replaced.
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

  /// Performs all remaining steps, and returns the journal that replaces the old one.
  ///
  /// Nothing may be added to the old journal at the same time.
  @discardableResult
  mutating func finish(_ journal: Journal, at date: Date) throws(Failure) -> Journal {
    while true {
      switch try advance(journal, at: date) {
      case .unfinished: continue
      case .finished(let replacement): return replacement
      }
    }
  }

  /// Gives up the compaction, and removes what it has written.
  func abandon() {
    replacement.abandon()
    // The next opening removes what can't be removed now.
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
      let lines = try lines(of: tasks[next], memories[next])
      underestimate.add(lines, estimate: tasks[next].byteCount)
      batches.append(lines + beginning(of: tasks[next]))
      size += batches[batches.count - 1].reduce(0) { $0 + $1.bytes.count + 64 }
    }
    try append(batches)
  }

  private mutating func copyValues() throws {
    var batches: [[JournalBody]] = []
    var size = 0
    while size < policy.stepSize, let value = values.popLast() {
      let line = try JournalBody(.value(named: value.name, value.value.bytes))
      underestimate.add([line], estimate: value.value.byteCount)
      batches.append([line])
      size += line.byteCount
    }
    try append(batches)
  }

  /// Frees the page of the last copied task, if the next task is in another page.
  private mutating func giveUpPages(before next: Int) {
    guard slot > 0 else { return }
    let page = (slot - 1) / Slab<TaskTable.Entry>.pageSize
    if next / Slab<TaskTable.Entry>.pageSize > page { tasks.removePage(page) }
  }

  private func lines(
    of entry: TaskTable.Entry,
    _ memory: TaskMemory
  ) throws -> [JournalBody] {
    var task = KeptTask(
      record: entry.record,
      // Only a number that another program wrote can lead beyond the limit.
      position: min(entry.position, KeptTask.maxPosition),
      hasLostKey: entry.isKeyless,
      orderNumber: min(entry.record.orderNumber, KeptTask.maxPosition)
    )
    if isLeased(entry) { task.record.state = .waiting }
    var lines = [try line(of: task)]
    if entry.remembers {
      try memory.forEach { name, value in
        lines.append(try JournalBody(.memory(task.record.id, named: name, value)))
      }
    }
    return lines
  }

  /// Returns the line that says that a task's attempt has begun, if the journal says so.
  private func beginning(of entry: TaskTable.Entry) -> [JournalBody] {
    let id = entry.record.id
    return isLeased(entry) && !unwritten.contains(id) ? [JournalBody(beginningOf: id)] : []
  }

  private func isLeased(_ entry: TaskTable.Entry) -> Bool {
    if case .leased = entry.place { true } else { false }
  }

  /// Returns the line of a task.
  ///
  /// The line combines what several lines said. It may be too long to be read, although none of
  /// those lines was.
  private func line(of task: KeptTask) throws -> JournalBody {
    let line = try JournalBody(.task(task))
    guard line.byteCount <= JournalLine.maxLength else {
      throw Unreadable(description: "the line of task \(task.record.id) would be too long")
    }
    return line
  }

  /// Copies lines that were added to the journal since the compaction began, in whole batches.
  ///
  /// A step copies up to twice as many bytes as the journal gained since the last step, or a usual
  /// step if that is more. So the copying catches up with the journal. One batch that is larger is
  /// copied as a whole.
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
      // These bytes hold no whole batch: the next one is larger than a step.
      guard bytes.count == count else {
        throw Unreadable(description: "the file ends where a line was written")
      }
      count *= 2
    }
  }

  /// Returns the whole batches at the beginning of these bytes, and how many bytes they are.
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
