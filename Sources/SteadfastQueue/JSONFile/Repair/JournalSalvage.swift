/// Finds all readable lines of a damaged file, and applies them to a table.
///
/// The lines are sorted by their sequence numbers. The second copy of a duplicate line is skipped.
/// The lines of an incomplete batch count, because they may have been acknowledged. If a line shows
/// that a lost line must have made some change, that change is made too (`TaskTable.salvage(_:)`).
struct JournalSalvage {
  private struct FoundLine {
    let line: JournalLine
    let number: Int
    let range: Range<Int>
    /// The problem with the line, which can be read nevertheless; `nil` if there is none.
    let problem: String?
  }

  private(set) var table = TaskTable()
  private(set) var version: Int?
  private(set) var generation: Int?
  /// Whether the last line of the file is a readable seal, which records that the file was closed.
  private(set) var isSealed = false
  /// The number of missing sequence numbers before the greatest one of a readable line.
  private(set) var lostLineCount: UInt64 = 0
  /// The problems of lines that are omitted.
  private(set) var skipped = ProblemList()
  /// The problems of lines that are not omitted, but are not in the expected position.
  private(set) var misplaced = ProblemList()

  private let bytes: [UInt8]
  private var decoder: JournalDecoder
  private var lines: [FoundLine] = []
  private var lineCount = 0
  private var nextSequence: UInt64 = 0
  private var badLines: UInt64 = 0
  /// The `firstUnsynced` of the batch to which the next line should belong; `nil` if it should
  /// start a batch.
  private var openBatch: UInt64?

  var readableLineCount: Int { lines.count }

  /// - Throws: An error if the file is not a queue's file, or a newer version has written it.
  init(_ bytes: [UInt8]) throws(JournalProblem) {
    self.bytes = bytes
    decoder = JournalDecoder(bytes)
    findLines()
    guard !lines.isEmpty else { throw .notAJournal }
    // In most damaged files, the readable lines are in order.
    if !zip(lines, lines.dropFirst()).allSatisfy({ $0.line.sequence <= $1.line.sequence }) {
      lines.sort { ($0.line.sequence, $0.number) < ($1.line.sequence, $1.number) }
    }
    try applyLines()
    table.promoteSuccessorsWithoutHolder()
    table.interruptLeased()
  }

  // MARK: Finding lines

  private mutating func findLines() {
    var position = 0
    while position < bytes.count {
      let end = bytes.lineFeed(from: position) ?? bytes.count
      lineCount += 1
      if let line = JournalLine(bytes, position..<end) {
        addLine(line, in: position..<end, problem: nil)
      } else if let line = JournalLine(beforeReturnIn: bytes, position..<end) {
        addLine(line, in: position..<end - 1, problem: JournalLine.carriageReturnProblem)
      } else if let (first, second) = mergedLines(in: position..<end) {
        addLine(first.line, in: first.range, problem: nil)
        addLine(second.line, in: second.range, problem: "the line feed before it is missing")
      } else if let found = lineAfterZeros(in: position..<end) {
        // Any number of lines may have been where the zeros are.
        badLines = .max
        openBatch = nil
        addLine(found.line, in: found.range, problem: "there are zeros before it")
      } else {
        badLines += 1
        openBatch = nil
        let reason = end < bytes.count ? "its checksum is wrong" : "it is incomplete"
        skipped.add(reason, line: lineCount, byte: position)
      }
      position = end + 1
    }
  }

  private mutating func addLine(_ line: JournalLine, in range: Range<Int>, problem: String?) {
    let problem = recordPosition(of: line) ?? problem
    lines.append(FoundLine(line: line, number: lineCount, range: range, problem: problem))
  }

  private typealias Found = (line: JournalLine, range: Range<Int>)

  /// Finds two readable lines in a range without a line feed; `nil` if the range does not consist
  /// of two lines.
  ///
  /// The line feed between the lines is damaged or missing. The second line is not part of a
  /// payload, because the checksum of the first line shows where that line ends.
  private func mergedLines(in range: Range<Int>) -> (Found, Found)? {
    let prefix = JournalLine.prefix
    let starts = range.dropFirst().filter { start in
      bytes[start] == prefix[0] && bytes[start..<range.upperBound].starts(with: prefix)
    }
    // A payload may contain bytes that look like the start of a line, but rarely more than once. So
    // only the first three and the last three possible starts are tried.
    for start in starts.prefix(3) + starts.dropFirst(3).suffix(3) {
      guard let second = JournalLine(bytes, start..<range.upperBound) else { continue }
      for end in [start - 1, start] where end > range.lowerBound {
        guard let first = JournalLine(bytes, range.lowerBound..<end) else { continue }
        return ((first, range.lowerBound..<end), (second, start..<range.upperBound))
      }
    }
    return nil
  }

  /// Finds a readable line that starts after the last zero of a range, and ends where the range
  /// ends.
  ///
  /// Everything before that line is lost. The found line is not part of a payload, because no
  /// payload contains a zero.
  private func lineAfterZeros(in range: Range<Int>) -> Found? {
    guard let zero = bytes[range].lastIndex(of: 0),
      let line = JournalLine(bytes, zero + 1..<range.upperBound)
    else { return nil }
    return (line, zero + 1..<range.upperBound)
  }

  /// Records the position of the next line, and returns the problem with that position; `nil` if
  /// there is none.
  private mutating func recordPosition(of line: JournalLine) -> String? {
    defer {
      nextSequence = max(nextSequence, line.sequence == .max ? .max : line.sequence + 1)
      badLines = 0
      openBatch = line.isContinued ? line.firstUnsynced : nil
    }
    // The bad lines before this line may have had the missing sequence numbers. They are separate
    // problems.
    let isExpected = line.sequence >= nextSequence && line.sequence - nextSequence <= badLines
    guard isExpected else {
      return "it has the number \(line.sequence) instead of \(nextSequence)"
    }
    if let openBatch, openBatch != line.firstUnsynced { return "the batch before it has no end" }
    return nil
  }

  // MARK: Applying lines

  private mutating func applyLines() throws(JournalProblem) {
    var sequence: UInt64 = 0
    var twins: Set<ArraySlice<UInt8>> = []
    for index in lines.indices {
      let found = lines[index]
      if found.line.sequence > sequence {
        lostLineCount += found.line.sequence - sequence
      }
      let isRepeated = index > 0 && lines[index - 1].line.sequence == found.line.sequence
      if !isRepeated {
        twins.removeAll(keepingCapacity: true)
        if index + 1 < lines.count, lines[index + 1].line.sequence == found.line.sequence {
          twins.insert(bytes[found.range])
        }
      }
      if isRepeated, !twins.insert(bytes[found.range]).inserted {
        skip(found, because: "it is a duplicate of an earlier line")
      } else {
        try apply(found)
      }
      sequence = found.line.sequence == .max ? .max : found.line.sequence + 1
    }
  }

  private mutating func apply(_ found: FoundLine) throws(JournalProblem) {
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try decoder.readEntry(of: found.line)
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: found.number)
      case .malformed where found.line.sequence == 0: throw .notAJournal
      case .malformed(let reason): return skip(found, because: reason)
      }
    }
    switch entry {
    case .header(let version, let generation):
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      guard self.version == nil else { return skip(found, because: "it is a second header") }
      self.version = version
      self.generation = generation
    case .seal:
      isSealed = found.number == lineCount
    case .task, .compacted, .change, .addition, .supersession, .restart, .value, .memory, .begin,
      .interruption:
      guard table.salvage(entry) else {
        return skip(found, because: "it contradicts the lines before it")
      }
    }
    if let problem = found.problem {
      misplaced.add(problem, line: found.number, byte: found.range.lowerBound)
    }
  }

  private mutating func skip(_ found: FoundLine, because reason: String) {
    skipped.add(reason, line: found.number, byte: found.range.lowerBound)
  }
}

extension TaskTable {
  /// Applies an entry of a damaged file and, if necessary, changes that lost lines must have made
  /// before it.
  ///
  /// For example, a line that says that an attempt started shows that the task was no longer
  /// paused.
  ///
  /// - Returns: Whether the entry could be applied.
  mutating func salvage(_ entry: JournalEntry) -> Bool {
    // The line that opened the value may be lost. Replaying a completion never fails, because it
    // may have come too late. So the lost line can't be detected, and the value is opened in any
    // case.
    if case .change(.memory(.complete(let id, let name, _))) = entry {
      openValue(named: name, of: id)
    }
    if replay(entry) { return true }
    if applyPresuppositions(of: entry), replay(entry) { return true }
    switch entry {
    case .addition(let record, .takenOver(by: let id)):
      // The line of the task that took over the new task is lost, or a line that made it wait.
      if slot(of: id) == nil { return salvage(.addition(record.replacing(id: id), .holder)) }
      return salvage(.addition(record, .successor))
    case .supersession(let change):
      // The line that added the successor is lost.
      return salvage(.change(change))
    case .header, .task, .compacted, .change, .addition, .restart, .value, .begin, .interruption,
      .memory, .seal:
      return false
    }
  }

  /// Makes the changes that lost lines must have made before an entry was written.
  ///
  /// - Returns: Whether it may be possible to apply the entry now.
  private mutating func applyPresuppositions(of entry: JournalEntry) -> Bool {
    switch entry {
    case .task(let task):
      return freeKey(for: task.record)
    case .addition(_, .takenOver(by: let id)):
      return makeTaskWait(id)
    case .addition(let record, .successor):
      return freeRole(.successor, for: record)
    case .addition(let record, .holder):
      // The second call frees the role if a successor has become the new holder.
      let isFree = freeRole(.holder, for: record)
      _ = freeRole(.holder, for: record)
      return isFree
    case .supersession(let change):
      return applyPresuppositions(of: change)
    case .begin(let id):
      return makeAvailable(id)
    case .change(let change), .restart(let change, _):
      return applyPresuppositions(of: change)
    case .memory(let id, _, _):
      guard slot(of: id) != nil else { return false }
      lastRestored = id
      return true
    case .header, .compacted, .value, .interruption, .seal:
      return true
    }
  }

  private mutating func applyPresuppositions(of change: TaskChange) -> Bool {
    switch change {
    case .insert(let record, _):
      return freeKey(for: record)
    case .remove(let id):
      return endTask(id)
    case .move(.unclaimed(let id), let move) where move.takesKey:
      guard let slot = slot(of: id) else { return false }
      return freeRole(.holder, for: entries[slot].record)
    default:
      return change.lease.map { salvage(.begin($0.id)) } ?? false
    }
  }

  /// Takes a new task's unique key from all other tasks, and returns whether any had it.
  ///
  /// The new task could only be stored with the key because the others had ended.
  private mutating func freeKey(for record: TaskRecord) -> Bool {
    guard slot(of: record.id) == nil, let key = record.uniqueKey else { return false }
    // In a file of an earlier version, a task with another name may have the key, even after it has
    // ended.
    let others = keys.slots(with: [key]).filter { !entries[$0].hasLostKey }
    for slot in others { loseKey(slot) }
    return !others.isEmpty
  }

  /// Takes a role for a new task's unique key from the task that has the role, and returns whether
  /// there was one.
  private mutating func freeRole(_ role: UniqueKeyRole, for record: TaskRecord) -> Bool {
    guard let key = record.uniqueKey, let lane = lanes.lane(of: record.name, in: record.queue)
    else { return false }
    let roles = keys[key, lane]
    guard let slot = role == .holder ? roles.holder : roles.successor else { return false }
    loseKey(slot)
    return true
  }

  /// Makes a task wait again, because a later line shows that it took over a new task with the same
  /// key.
  private mutating func makeTaskWait(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id) else { return false }
    switch entries[slot].place {
    case .leased(let token): return replay(.change(.release(Lease(id: id, token: token))))
    case .finished: return makeAvailable(id)
    case .staged, .waiting, .ready, .held, .suspended, .parked, .paused: return false
    }
  }

  /// Makes a task available, because a later line shows that an attempt of it started.
  ///
  /// So a lost line had unparked, resumed or restarted the task, for example.
  private mutating func makeAvailable(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id) else { return false }
    let record = entries[slot].record
    switch entries[slot].place {
    case .parked: return replay(.change(.unpark(name: record.name, queue: record.queue)))
    case .paused: return replay(.change(.resume(id)))
    case .suspended:
      // The line that completed the value for which the task was waiting is lost.
      let date = record.createdDate
      let wake = TaskChange.reschedule(.unclaimed(id), availableDate: date, countedFrom: date)
      return replay(.change(wake))
    case .finished:
      let restart = TaskChange.restart(.unclaimed(id), availableDate: record.availableDate)
      return replay(.change(restart))
    case .held:
      // The task was waiting for another one. The line that ended the other task is lost, or all
      // lines about that task are.
      if record.keyRole == .successor, !freeRole(.holder, for: record) {
        promoteIfKeyHasNoHolder(slot)
      }
      if entries[slot].isBehindHead, let key = orderKey(of: slot) { releaseHead(of: key) }
      if entries[slot].waitsForOthers { stopWaiting(slot) }
      return true
    case .staged, .waiting, .ready, .leased: return false
    }
  }

  /// Opens a value of a task, so that a completion can be applied to it.
  ///
  /// This does nothing if the task has ended, or already remembers a value with the name.
  private mutating func openValue(named name: String, of id: TaskID) {
    guard let slot = slot(of: id), !entries[slot].record.state.isFinished,
      memories[slot][name] == nil
    else { return }
    setMemory([], named: name, of: slot)
  }

  /// Ends the attempt of the first task with an order key, because a later line shows that another
  /// task with the key was performed.
  private mutating func releaseHead(of key: OrderKeys.Key) {
    guard let head = order.head(of: key),
      case .leased(let token) = entries[head.slot].place
    else { return }
    _ = replay(.change(.release(Lease(id: entries[head.slot].record.id, token: token))))
  }

  /// Cancels a task that has not ended, because a later line says that it was removed.
  private mutating func endTask(_ id: TaskID) -> Bool {
    guard let slot = slot(of: id), !entries[slot].record.state.isFinished else { return false }
    let date = entries[slot].record.availableDate
    return replay(.change(.cancel(.unclaimed(id), at: date, retains: true)))
  }
}
