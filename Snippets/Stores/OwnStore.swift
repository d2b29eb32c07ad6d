//! A store of your own: a JSON document that is written again at each change, checked by the
//! conformance kit.

import Foundation
import SteadfastTesting
import Testing

// snippet.entry
/// A task, and what the store adds to it.
struct Entry: Sendable {
  var record: TaskRecord
  /// Its place among tasks of the same priority and date.
  var place: Int
  /// Its place among the tasks with its order key, which it keeps.
  var number: Int
  /// The token of its lease, while it is claimed.
  var token: UInt64?
  /// What it remembers.
  var memory = TaskMemory()
}

/// Everything in the store, as a value.
///
/// A change is made to a copy, and the copy is written.
struct Document: Sendable {
  var entries: [TaskID: Entry] = [:]
  /// The values, by the bytes of their names.
  var values: [[UInt8]: [UInt8]] = [:]
  /// The last number that was used for a place or a token.
  ///
  /// No number is used twice.
  var lastNumber = 0

  mutating func nextNumber() -> Int {
    lastNumber += 1
    return lastNumber
  }
}
// snippet.end

// snippet.store
actor DocumentStore: Persistence {
  private let url: URL
  private var document: Document?
  private var isClosed = false
  private var isDestroyed = false

  init(at url: URL) { self.url = url }

  func open() throws { _ = try opened() }

  private func opened() throws -> Document {
    if isClosed { throw DocumentError.closed }
    if let document { return document }
    var read = Document()
    if FileManager.default.fileExists(atPath: url.path) {
      read = try JSONDecoder().decode(
        Document.self,
        from: Data(contentsOf: url)
      )
    }
    // The process that was performing these tasks has ended.
    for entry in read.entries.values where entry.token != nil {
      var entry = entry
      entry.token = nil
      entry.record.state = .waiting
      entry.record.interruptionCount += 1
      read.entries[entry.record.id] = entry
    }
    document = read
    return read
  }

  /// Writes the next document, and makes it the present one only after that.
  ///
  /// This survives the end of the process. To survive a power cut, the file and
  /// its folder would have to be flushed too.
  private func keep(_ next: Document) throws {
    try JSONEncoder().encode(next).write(to: url, options: .atomic)
    document = next
  }

  func apply(_ batch: [TaskChange], durability: Durability) throws
    -> [ChangeOutcome]
  {
    for change in batch { try change.checkForm() }
    var next = try opened()
    let outcomes = try next.apply(batch)
    if outcomes.contains(where: { $0 != .stale && $0 != .valueDiffers }) {
      try keep(next)
    }
    return outcomes
  }

  func claim(_ request: ClaimRequest) throws -> Claim {
    var next = try opened()
    let claim = next.claim(request)
    if !claim.tasks.isEmpty { try keep(next) }
    return claim
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) throws -> [TaskRecord] {
    func precedes(_ first: TaskID, _ second: TaskID) -> Bool {
      newestFirst ? first > second : first < second
    }
    let found = try opened().entries.values.map(\.record).filter(filter.matches)
    return Array(
      found.filter { task in id.map { precedes($0, task.id) } ?? true }
        .sorted { precedes($0.id, $1.id) }.prefix(limit)
    )
  }

  func count(matching filter: TaskFilter) throws -> Int {
    try opened().entries.values.count { filter.matches($0.record) }
  }

  func value(named name: String) throws -> [UInt8]? {
    try opened().values[Array(name.utf8)]
  }

  func values(prefix: String) throws -> [(name: String, bytes: [UInt8])] {
    try opened().values.filter { $0.key.starts(with: prefix.utf8) }
      .sorted { $0.key.lexicographicallyPrecedes($1.key) }
      .map { (String(decoding: $0.key, as: UTF8.self), $0.value) }
  }

  func memory(of id: TaskID) throws -> TaskMemory {
    try opened().entries[id]?.memory ?? TaskMemory()
  }

  func close() { isClosed = true }

  func destroy() throws {
    if isDestroyed { return }
    if FileManager.default.fileExists(atPath: url.path) {
      try FileManager.default.removeItem(at: url)
    }
    (isClosed, isDestroyed) = (true, true)
  }
}
// snippet.end

enum DocumentError: Error { case closed, unknownChange, unknownWord }

// snippet.claim
extension Document {
  mutating func claim(_ request: ClaimRequest) -> Claim {
    let heldUp = heldUp
    let waiting = entries.values.filter { entry in
      entry.record.isDueOnDate && entry.record.keyRole != .successor
        && entry.record.queue.utf8.elementsEqual(request.queue.utf8)
        && hasTurn(entry) && !heldUp.contains(entry.record.id)
    }
    let available =
      waiting.filter { entry in
        entry.record.availableDate <= request.now
          && entry.record.conditions.isSubset(of: request.conditions)
          && entry.record.payload.version
            <= request.version(for: entry.record.name)
      }
      .sorted { left, right in
        let (first, second) = (left.record, right.record)
        if first.priority != second.priority {
          return first.priority > second.priority
        }
        if first.availableDate != second.availableDate {
          return first.availableDate < second.availableDate
        }
        return left.place < right.place
      }
    // By bytes, as Swift takes other texts for the same.
    var taken: [[UInt8]: Int] = [:]
    let allowed = available.filter { entry in
      let name = Array(entry.record.name.utf8)
      taken[name, default: 0] += 1
      return taken[name, default: 0] <= request.room(for: entry.record.name)
    }
    let tasks = allowed.prefix(request.limit).map { entry in
      var entry = entry
      let token = UInt64(nextNumber())
      entry.token = token
      entry.record.state = .running
      entries[entry.record.id] = entry
      return ClaimedTask(
        record: entry.record,
        lease: Lease(id: entry.record.id, token: token)
      )
    }
    let later = waiting.map(\.record.availableDate).filter { $0 > request.now }
      .min()
    return Claim(
      tasks: tasks,
      nextDate: allowed.count > tasks.count ? request.now : later
    )
  }

  /// Whether no other task with the order key is running or comes first.
  private func hasTurn(_ entry: Entry) -> Bool {
    guard let key = entry.record.orderKey else { return true }
    return !entries.values.contains { other in
      guard other.record.orderKey == key, other.record.id != entry.record.id,
        other.record.queue.utf8.elementsEqual(entry.record.queue.utf8)
      else { return false }
      let isInOrder = !other.record.state.isFinished || other.record.blocksOrder
      return other.record.state == .running
        || isInOrder && other.number < entry.number
    }
  }
}
// snippet.end

// snippet.changes
extension Document {
  /// Makes all changes of a batch or, if a value differs or an insertion refuses
  /// the batch, none.
  mutating func apply(_ batch: [TaskChange]) throws -> [ChangeOutcome] {
    for case .setValue(let name, let old, _) in batch
    where values[Array(name.utf8)] != old {
      return batch.map { _ in .valueDiffers }
    }
    let before = self
    var outcomes: [ChangeOutcome] = []
    for change in batch {
      let outcome = try apply(change)
      promoteSuccessors()
      outcomes.append(outcome)
      switch (change, outcome) {
      case (_, .identityTaken), (_, .unmetDependency),
        (.insert(_, onDuplicate: .reject), .duplicate):
        self = before
        // A change that had no effect anyway keeps its outcome.
        let answers = outcomes.map { outcome in
          switch outcome {
          case .done, .doneWithConsequences, .replaced, .superseded:
            ChangeOutcome.batchRefused
          default: outcome
          }
        }
        return answers
          + batch.dropFirst(answers.count).map { _ in .batchRefused }
      default: continue
      }
    }
    return outcomes
  }

  private mutating func apply(_ change: TaskChange) throws -> ChangeOutcome {
    switch change {
    case .insert(let record, let policy): return insert(record, policy)
    case .move(let target, let move): return self.move(target, move)
    case .end(let target, let end): return self.end(target, end)
    case .update(let id, let update):
      guard let record = entries[id]?.record, !record.state.isFinished,
        record.uniqueKey == nil || record.keyRole != nil
      else { return .stale }
      let keepsPlace =
        update.priority == nil || update.priority == record.priority
      return self.change(.unclaimed(id), keepsPlace: keepsPlace) {
        $0.apply(update)
      }
    case .remove(let id):
      guard let record = entries[id]?.record, record.state.isFinished else {
        return .stale
      }
      let others = isAwaited(record)
      let along = remove(id)
      guard others else { return .done }
      return .doneWithConsequences(Consequences(tasks: along))
    case .broad(.unpark(let name, let queue, let version)):
      unpark(name, in: queue, below: version)
    case .broad(.prune(let state, let date, let count, let now, let queue)):
      prune(state, in: queue, endedBefore: date, keeping: count, now)
    case .broad(.rebase(let date)): rebase(to: date)
    // Only one queue uses this store, so its claims have no end, and no other
    // process stores commands.
    case .extend: break
    case .command: return .stale
    case .setValue(let name, _, let new): values[Array(name.utf8)] = new
    case .memory(.remember(let lease, let name, let value)):
      return remember(lease, name, value)
    case .memory(.suspend(let lease, let date, let names, let origin)):
      return suspend(lease, until: date, awaiting: names, countedFrom: origin)
    case .memory(.complete(let id, let name, let value)):
      return complete(id, name, value)
    case .memory, .broad: throw DocumentError.unknownChange
    @unknown default: throw DocumentError.unknownChange
    }
    return .done
  }

  private mutating func move(_ target: TaskTarget, _ move: TaskMove)
    -> ChangeOutcome
  {
    guard let record = entries[target.id]?.record, concerns(target),
      move.state(from: record.state) != nil
    else { return .stale }
    if move.takesKey, record.uniqueKey != nil, record.keyRole == nil {
      if let holder = task(like: record, .holder) {
        return .duplicate(of: holder)
      }
      entries[target.id]?.record.keyRole = .holder
    }
    _ = change(target, keepsPlace: move.keepsPosition) { $0.move(by: move) }
    if move.forgetsMemory { forget(target.id) }
    if move.yieldsToSuccessor { return supersede(target.id) ?? .done }
    guard move.takesKey, record.state.isFinished, isAwaited(record) else {
      return .done
    }
    let along = moveAlong(record, move)
    return done(record, with: along)
  }

  private mutating func end(_ target: TaskTarget, _ end: TaskEnd)
    -> ChangeOutcome
  {
    guard let record = entries[target.id]?.record, concerns(target),
      !record.state.isFinished
    else { return .stale }
    let others = isAwaited(record)
    _ = change(target) { record in
      if let failure = end.failure { record.note(failure) }
      record.state = end.state
      record.finishedDate = end.date
      record.keyRole = nil
    }
    if end.state == .succeeded { forget(target.id) }
    if !end.retains { entries[target.id] = nil }
    guard others else { return .done }
    let along = endAlong(record, end)
    return done(record, with: along)
  }

  /// Changes a task, and ends its claim.
  private mutating func change(
    _ target: TaskTarget,
    keepsPlace: Bool = false,
    _ body: (inout TaskRecord) -> Void
  ) -> ChangeOutcome {
    guard var entry = entries[target.id], concerns(target) else {
      return .stale
    }
    entry.token = nil
    body(&entry.record)
    if !keepsPlace { entry.place = nextNumber() }
    entries[target.id] = entry
    return .done
  }

  /// Whether a target's lease is the task's, or the task is not claimed.
  private func concerns(_ target: TaskTarget) -> Bool {
    guard let entry = entries[target.id] else { return false }
    return switch target {
    case .claimed(let lease): entry.token == lease.token
    case .unclaimed: entry.token == nil
    }
  }
}
// snippet.end

// snippet.keys
extension Document {
  /// The task with the name and the key of another one, and with this role.
  private func task(like record: TaskRecord, _ role: UniqueKeyRole) -> TaskID? {
    entries.values.first { entry in
      entry.record.keyRole == role && entry.record.isTwin(of: record)
    }?.record.id
  }

  private mutating func insert(_ record: TaskRecord, _ policy: UniquePolicy)
    -> ChangeOutcome
  {
    if let entry = entries[record.id] {
      // A queue sends it again if the answer to the first sending was lost.
      return record.isStored(as: entry.record) ? .done : .identityTaken
    }
    var record = record
    record.keyRole = nil
    record.memorySize = 0
    if record.uniqueKey != nil, !record.state.isFinished {
      if let outcome = outcome(of: record, policy) { return outcome }
      let isAlone = lasting(.holder, like: record) == nil
      record.keyRole = isAlone ? .holder : .successor
    }
    if let unmet = unmetDependency(of: record) {
      return .unmetDependency(unmet)
    }
    takeRoles(of: record)
    join(&record)
    let place = nextNumber()
    entries[record.id] = Entry(record: record, place: place, number: place)
    return .done
  }

  /// The task with a role, unless it has expired when the new one is made.
  private func lasting(_ role: UniqueKeyRole, like new: TaskRecord)
    -> TaskID?
  {
    task(like: new, role).flatMap { id in
      hasExpired(id, by: new.createdDate) ? nil : id
    }
  }

  private func hasExpired(_ id: TaskID, by date: Date) -> Bool {
    guard let record = entries[id]?.record, record.state != .running else {
      return false
    }
    return record.expiryDate.map { $0 <= date } ?? false
  }

  /// Takes their roles from tasks that have expired, for a new one.
  private mutating func takeRoles(of new: TaskRecord) {
    guard new.keyRole != nil else { return }
    for role in [UniqueKeyRole.holder, .successor] {
      guard let id = task(like: new, role), lasting(role, like: new) == nil
      else { continue }
      entries[id]?.record.keyRole = nil
    }
  }

  /// The outcome of a task that is not added, because another one has its key.
  private mutating func outcome(of record: TaskRecord, _ policy: UniquePolicy)
    -> ChangeOutcome?
  {
    let holder = lasting(.holder, like: record)
    let successor = lasting(.successor, like: record)
    guard let twin = successor ?? holder else {
      let same = policy == .replace ? nil : succeeded(like: record)
      return same.map { .duplicate(of: $0) }
    }
    if policy == .reject || policy == .join {
      return .duplicate(of: holder ?? twin)
    }
    let isRunning = entries[twin]?.record.state == .running
    let standsForIt =
      entries[twin]?.record.isDeduplicating(on: record.createdDate) ?? false
    if successor == nil, isRunning, policy == .replace || !standsForIt {
      return nil
    }
    guard policy == .replace else { return .duplicate(of: twin) }
    // What it has begun does not go on with another payload.
    if successor == nil, remembers(twin) { return nil }
    replace(twin, by: record)
    return .replaced(twin)
  }

  /// The task that has succeeded, and stands for new tasks with its key.
  private func succeeded(like record: TaskRecord) -> TaskID? {
    let found = entries.values.map(\.record).filter { other in
      other.state == .succeeded && other.isTwin(of: record)
        && other.isDeduplicating(on: record.createdDate)
    }
    return found.max {
      ($0.uniqueUntil ?? .distantPast, $0.id)
        < ($1.uniqueUntil ?? .distantPast, $1.id)
    }?.id
  }

  private mutating func replace(_ id: TaskID, by new: TaskRecord) {
    guard var entry = entries[id] else { return }
    if entry.record.takeOver(new) { entry.place = nextNumber() }
    entries[id] = entry
  }

  /// Puts the successor of a task that has failed in its place, if there is one.
  private mutating func supersede(_ id: TaskID) -> ChangeOutcome? {
    guard let holder = entries[id]?.record, holder.keyRole == .holder,
      !isAwaited(holder), !remembers(id),
      let successor = task(like: holder, .successor),
      !hasExpired(successor, by: holder.availableDate)
    else { return nil }
    entries[successor]?.record.takePlace(of: holder)
    entries[id] = nil
    return .superseded(by: successor)
  }

  /// Makes each successor whose holder has ended the holder.
  private mutating func promoteSuccessors() {
    for entry in entries.values where entry.record.keyRole == .successor {
      guard task(like: entry.record, .holder) == nil else { continue }
      entries[entry.record.id]?.record.keyRole = .holder
    }
  }
}

extension TaskRecord {
  /// Whether new tasks count as this one on a date, even if it runs or has succeeded.
  fileprivate func isDeduplicating(on date: Date) -> Bool {
    uniqueUntil.map { $0 > date } ?? false
  }
}
// snippet.end

// snippet.dependencies
extension Document {
  /// The tasks that wait for another one that has not ended.
  private var heldUp: Set<TaskID> {
    let open = entries.values.map(\.record).filter { !$0.state.isFinished }
    let ids = Set(open.map(\.id))
    let waiting = open.filter { record in
      !record.dependencies.tasks.isDisjoint(with: ids)
    }
    return Set(waiting.map(\.id) + open.compactMap(\.dependencies.follower))
  }

  /// Whether a task names this one, or it has a follower.
  private func isAwaited(_ record: TaskRecord) -> Bool {
    record.dependencies.follower != nil
      || entries.values.contains { other in
        other.record.dependencies.tasks.contains(record.id)
      }
  }

  /// The tasks that name this one, and its follower, in the order of their IDs.
  private func tasks(thatWaitFor record: TaskRecord) -> [TaskRecord] {
    entries.values.map(\.record).filter { other in
      other.dependencies.tasks.contains(record.id)
        || other.id == record.dependencies.follower
    }.sorted { $0.id < $1.id }
  }

  /// The least task for which a new one would wait without end.
  private func unmetDependency(of record: TaskRecord) -> TaskID? {
    if record.state.isFinished { return nil }
    return record.dependencies.tasks.filter { id in
      guard let state = entries[id]?.record.state else { return true }
      return record.dependencies.rule == .allSucceeded && state.hasFailed
    }.min()
  }

  /// Gives a new task what has happened to those for which it waits, and counts
  /// it for its batch.
  private mutating func join(_ record: inout TaskRecord) {
    var dependencies = record.dependencies
    dependencies.failed = [:]
    dependencies.cause = nil
    dependencies.batch = nil
    for id in dependencies.tasks.sorted() {
      guard let state = entries[id]?.record.state, state.hasFailed else {
        continue
      }
      dependencies.note(id, endedAs: state)
    }
    // Tasks that come before their follower are of the same batch of changes.
    for member in entries.values.map(\.record)
    where member.dependencies.follower == record.id {
      dependencies.batch = dependencies.batch.adding(member.state)
    }
    record.dependencies = dependencies
    if let follower = dependencies.follower, let other = entries[follower] {
      let batch = other.record.dependencies.batch
      entries[follower]?.record.dependencies.batch = batch.adding(record.state)
    }
  }

  /// Counts the end of a task for its batch, or takes it back.
  private mutating func count(
    _ record: TaskRecord,
    as state: TaskState,
    _ by: Int
  ) {
    guard let follower = record.dependencies.follower else { return }
    if state == .succeeded {
      entries[follower]?.record.dependencies.batch?.succeeded += by
    } else {
      entries[follower]?.record.dependencies.batch?.failed += by
    }
  }

  private func done(_ record: TaskRecord, with tasks: [TaskID])
    -> ChangeOutcome
  {
    let follower = record.dependencies.follower.flatMap { entries[$0]?.record }
    let batch = follower?.dependencies.batch
    return .doneWithConsequences(Consequences(tasks: tasks, batch: batch))
  }

  /// Counts and notes an end, and cancels the tasks that waited for a success.
  private mutating func endAlong(_ record: TaskRecord, _ end: TaskEnd)
    -> [TaskID]
  {
    var (next, along) = ([(record, end.state)], Set<TaskID>())
    while let (task, state) = next.popLast() {
      count(task, as: state, 1)
      guard state.hasFailed else { continue }
      for other in tasks(thatWaitFor: task) {
        var dependencies = other.dependencies
        dependencies.note(task.id, endedAs: state)
        let isAtRest = other.state != .running && !other.state.isFinished
        if dependencies.rule == .allSucceeded, isAtRest {
          dependencies.cause = min(dependencies.cause ?? task.id, task.id)
          if along.insert(other.id).inserted {
            next.append((other, .cancelled))
          }
        }
        entries[other.id]?.record.dependencies = dependencies
      }
    }
    for id in along.sorted() {
      _ = change(.unclaimed(id)) { record in
        record.state = .cancelled
        record.finishedDate = end.date
        record.keyRole = nil
      }
      if !end.retains { entries[id] = nil }
    }
    return along.sorted()
  }

  /// Takes an end back, and restarts those that were cancelled because of it.
  private mutating func moveAlong(_ record: TaskRecord, _ move: TaskMove)
    -> [TaskID]
  {
    var (round, along) = ([record], Set<TaskID>())
    while !round.isEmpty {
      for task in round {
        count(task, as: task.state, -1)
        for other in tasks(thatWaitFor: task) {
          entries[other.id]?.record.dependencies.failed[task.id] = nil
        }
      }
      let causes = Set(round.map(\.id))
      round = []
      for other in cancelled(becauseOf: causes) {
        if staysCancelled(other) {
          let failed = other.dependencies.failed.keys.filter { id in
            entries[id] != nil
          }
          entries[other.id]?.record.dependencies.cause = failed.min()
        } else {
          if other.uniqueKey != nil {
            entries[other.id]?.record.keyRole = .holder
          }
          round.append(other)
        }
      }
      along.formUnion(round.map(\.id))
    }
    for id in along.sorted() {
      _ = change(.unclaimed(id)) { $0.move(by: move) }
    }
    return along.sorted()
  }

  private func cancelled(becauseOf causes: Set<TaskID>) -> [TaskRecord] {
    entries.values.map(\.record).filter { record in
      record.state == .cancelled
        && record.dependencies.cause.map(causes.contains) ?? false
    }.sorted { $0.id < $1.id }
  }

  private func staysCancelled(_ record: TaskRecord) -> Bool {
    let dependencies = record.dependencies
    return !dependencies.failed.isEmpty
      || dependencies.batch.map { $0.failed > 0 } ?? false
      || record.uniqueKey != nil && task(like: record, .holder) != nil
  }

  /// Removes a task, and those that were cancelled because of it.
  @discardableResult
  private mutating func remove(_ id: TaskID) -> [TaskID] {
    entries[id] = nil
    let others = cancelled(becauseOf: [id]).map(\.id)
    return (others + others.flatMap { remove($0) }).sorted()
  }
}

extension TaskState {
  fileprivate var hasFailed: Bool { self == .abandoned || self == .cancelled }
}

extension BatchProgress? {
  /// The progress with one more task.
  fileprivate func adding(_ state: TaskState) -> BatchProgress {
    var batch = self ?? BatchProgress()
    batch.total += 1
    if state == .succeeded { batch.succeeded += 1 }
    if state.hasFailed { batch.failed += 1 }
    return batch
  }
}
// snippet.end

// snippet.memory
extension Document {
  private func remembers(_ id: TaskID) -> Bool {
    entries[id].map { !$0.memory.isEmpty } ?? false
  }

  private mutating func remember(
    _ lease: Lease,
    _ name: String,
    _ value: [UInt8]
  ) -> ChangeOutcome {
    guard entries[lease.id]?.token == lease.token else { return .stale }
    set(value, under: name, of: lease.id)
    entries[lease.id]?.record.interruptionCount = 0
    return .done
  }

  private mutating func set(
    _ value: [UInt8],
    under name: String,
    of id: TaskID
  ) {
    guard var entry = entries[id] else { return }
    entry.memory[name] = value
    entry.record.memorySize = entry.memory.size
    entries[id] = entry
  }

  private mutating func forget(_ id: TaskID) {
    entries[id]?.memory = TaskMemory()
    entries[id]?.record.memorySize = 0
  }

  /// Suspends a claimed task, unless what it awaits has come.
  private mutating func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) -> ChangeOutcome {
    let memory = entries[lease.id]?.memory ?? TaskMemory()
    let hasCome = names.contains { memory[$0]?.isEmpty == false }
    return change(.claimed(lease)) { record in
      record.suspend(until: date, countedFrom: origin)
      if hasCome { record.wake() }
    }
  }

  /// Sets a value that is open, and wakes the task if it is suspended.
  private mutating func complete(
    _ id: TaskID,
    _ name: String,
    _ value: [UInt8]
  ) -> ChangeOutcome {
    guard let entry = entries[id], !entry.record.state.isFinished,
      entry.memory[name]?.isEmpty == true
    else { return .stale }
    set(value, under: name, of: id)
    guard entry.record.state == .suspended else { return .done }
    return change(.unclaimed(id)) { $0.wake() }
  }
}

extension TaskRecord {
  /// Whether a date makes the task available; without one, a completion does.
  fileprivate var isDueOnDate: Bool {
    state == .waiting || state == .suspended && availableDate < .distantFuture
  }
}
// snippet.end

extension Document {
  private mutating func unpark(
    _ name: String,
    in queue: String,
    below version: Int?
  ) {
    for entry in entries.values where entry.record.state == .parked {
      guard entry.record.name.utf8.elementsEqual(name.utf8),
        entry.record.queue.utf8.elementsEqual(queue.utf8)
      else { continue }
      if let version, let known = entry.record.parkedVersion, known >= version {
        continue
      }
      _ = change(.unclaimed(entry.record.id)) { $0.state = .waiting }
    }
  }

  private mutating func prune(
    _ state: TaskState,
    in queue: String,
    endedBefore date: Date?,
    keeping count: Int?,
    _ now: Date
  ) {
    let ended = entries.values.filter { entry in
      entry.record.state == state && !entry.record.isDeduplicating(on: now)
        && !entry.record.blocksOrder
        && entry.record.dependencies.cause == nil
        && entry.record.queue.utf8.elementsEqual(queue.utf8)
    }.sorted { $0.place > $1.place }
    for (index, entry) in ended.enumerated() {
      let isOld = date.map { (entry.record.finishedDate ?? $0) < $0 } ?? false
      if isOld || index >= count ?? .max { remove(entry.record.id) }
    }
  }

  private mutating func rebase(to now: Date) {
    for var entry in entries.values.sorted(by: { $0.place < $1.place }) {
      let goesBehind = entry.record.rebase(to: now)
      if goesBehind, entry.record.state == .waiting {
        entry.place = nextNumber()
      }
      entries[entry.record.id] = entry
    }
  }
}

// MARK: - The document as JSON

extension Document: Codable {
  private enum Key: CodingKey { case lastNumber, entries, values }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    lastNumber = try container.decode(Int.self, forKey: .lastNumber)
    for entry in try container.decode([Entry].self, forKey: .entries) {
      entries[entry.record.id] = entry
    }
    for value in try container.decode([NamedValue].self, forKey: .values) {
      values[Array(value.name)] = Array(value.bytes)
    }
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(lastNumber, forKey: .lastNumber)
    try container.encode(Array(entries.values), forKey: .entries)
    let named = values.map { NamedValue(name: Data($0), bytes: Data($1)) }
    try container.encode(named, forKey: .values)
  }
}

/// Bytes under a name in the form that they have in the document.
private struct NamedValue: Codable {
  var name: Data
  var bytes: Data
}

/// A task in the form that it has in the document.
private struct EarlierFailure: Codable {
  var reason: String
  var date: Date
  var attempt: String?
}

/// The dependencies of a task in the form that they have in the document.
private struct StoredDependencies: Codable {
  struct Failed: Codable {
    var id: TaskID
    var state: String
  }

  var tasks: [TaskID]
  var rule: String
  var follower: TaskID?
  var failed: [Failed]
  var cause: TaskID?
  /// The total of the batch, and how many have succeeded and failed.
  var batch: [Int]?

  init(_ dependencies: TaskDependencies) {
    tasks = Array(dependencies.tasks)
    rule = dependencies.rule.rawValue
    follower = dependencies.follower
    failed = dependencies.failed.map { Failed(id: $0.key, state: $0.value.rawValue) }
    cause = dependencies.cause
    batch = dependencies.batch.map { [$0.total, $0.succeeded, $0.failed] }
  }

  func value() throws -> TaskDependencies {
    guard let rule = DependencyRule(rawValue: rule), batch.map({ $0.count == 3 }) ?? true else {
      throw DocumentError.unknownWord
    }
    var value = TaskDependencies(on: Set(tasks), rule: rule, follower: follower, cause: cause)
    value.batch = batch.map { BatchProgress(total: $0[0], succeeded: $0[1], failed: $0[2]) }
    for task in failed { value.failed[task.id] = TaskState(rawValue: task.state) }
    return value
  }
}

extension Entry: Codable {
  private enum Key: CodingKey {
    case id, name, payload, format, version, priority, createdDate, maxRetries, usesBackoff
    case uniqueKey, keyRole, uniqueUntil, latestDate, orderKey, blocksOrderOnFailure, conditions
    case dependencies, queue, tags, metadata, timeLimit, expiryDate, state, availableDate
    case countedFrom, retryCount, interruptionCount, lastError, failedDate
    case failedAttempt, earlierFailures
    case parkedVersion, isPostponed, finishedDate
    case place, number, token, memory
  }

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    func value<Value: Decodable>(_ key: Key) throws -> Value {
      try container.decode(Value.self, forKey: key)
    }
    func valueIfAny<Value: Decodable>(_ key: Key) throws -> Value? {
      try container.decodeIfPresent(Value.self, forKey: key)
    }
    guard let format = StoredPayload.Format(rawValue: try value(.format)),
      let state = TaskState(rawValue: try value(.state))
    else { throw DocumentError.unknownWord }
    let payload: Data = try value(.payload)
    let maxRetries: Int? = try valueIfAny(.maxRetries)
    let conditions: [String] = try value(.conditions)
    let earlier: [EarlierFailure] = try valueIfAny(.earlierFailures) ?? []
    let dependencies: StoredDependencies? = try valueIfAny(.dependencies)
    let remembered: [NamedValue] = try valueIfAny(.memory) ?? []
    for value in remembered {
      memory[String(decoding: value.name, as: UTF8.self)] = Array(value.bytes)
    }
    record = TaskRecord(
      id: try value(.id),
      name: try value(.name),
      payload: StoredPayload(Array(payload), format: format, version: try value(.version)),
      priority: TaskQueue.Priority(rawValue: try value(.priority)),
      createdDate: try value(.createdDate),
      maxRetries: maxRetries.map { .atMost($0) } ?? .alwaysRetry,
      usesBackoff: try value(.usesBackoff),
      uniqueKey: try valueIfAny(.uniqueKey),
      keyRole: (try valueIfAny(.keyRole)).flatMap(UniqueKeyRole.init),
      uniqueUntil: try valueIfAny(.uniqueUntil),
      latestDate: try valueIfAny(.latestDate),
      orderKey: try valueIfAny(.orderKey),
      blocksOrderOnFailure: try value(.blocksOrderOnFailure),
      conditions: Set(conditions.map(TaskCondition.init(rawValue:))),
      dependencies: try dependencies?.value() ?? TaskDependencies(),
      queue: try value(.queue),
      tags: try value(.tags),
      metadata: try valueIfAny(.metadata) ?? [:],
      timeLimit: try valueIfAny(.timeLimit),
      expiryDate: try valueIfAny(.expiryDate),
      memorySize: memory.size,
      state: state,
      availableDate: try value(.availableDate),
      countedFrom: try valueIfAny(.countedFrom),
      retryCount: try value(.retryCount),
      interruptionCount: try value(.interruptionCount),
      lastError: try valueIfAny(.lastError),
      failedDate: try valueIfAny(.failedDate),
      failedAttempt: try valueIfAny(.failedAttempt).map(FailedAttempt.init(text:)),
      earlierFailures: earlier.map { failure in
        TaskFailure(
          reason: failure.reason,
          date: failure.date,
          attempt: failure.attempt.map(FailedAttempt.init(text:))
        )
      },
      parkedVersion: try valueIfAny(.parkedVersion),
      isPostponed: try value(.isPostponed),
      finishedDate: try valueIfAny(.finishedDate)
    )
    place = try value(.place)
    number = try value(.number)
    token = try valueIfAny(.token)
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    func keep(_ value: (some Encodable)?, _ key: Key) throws {
      try container.encodeIfPresent(value, forKey: key)
    }
    try keep(record.id, .id)
    try keep(record.name, .name)
    try keep(Data(try record.payload.bytes()), .payload)
    try keep(record.payload.format.rawValue, .format)
    try keep(record.payload.version, .version)
    try keep(record.priority.rawValue, .priority)
    try keep(record.createdDate, .createdDate)
    if case .atMost(let limit) = record.maxRetries { try keep(limit, .maxRetries) }
    try keep(record.usesBackoff, .usesBackoff)
    try keep(record.uniqueKey, .uniqueKey)
    try keep(record.keyRole?.rawValue, .keyRole)
    try keep(record.uniqueUntil, .uniqueUntil)
    try keep(record.latestDate, .latestDate)
    try keep(record.orderKey, .orderKey)
    try keep(record.blocksOrderOnFailure, .blocksOrderOnFailure)
    try keep(record.conditions.map(\.rawValue), .conditions)
    if record.dependencies != TaskDependencies() {
      try keep(StoredDependencies(record.dependencies), .dependencies)
    }
    try keep(record.queue, .queue)
    try keep(record.tags, .tags)
    if !record.metadata.isEmpty { try keep(record.metadata, .metadata) }
    try keep(record.timeLimit, .timeLimit)
    try keep(record.expiryDate, .expiryDate)
    try keep(record.state.rawValue, .state)
    try keep(record.availableDate, .availableDate)
    try keep(record.countedFrom, .countedFrom)
    try keep(record.retryCount, .retryCount)
    try keep(record.interruptionCount, .interruptionCount)
    try keep(record.lastError, .lastError)
    try keep(record.failedDate, .failedDate)
    try keep(record.failedAttempt?.text, .failedAttempt)
    let earlier = record.earlierFailures.map { failure in
      EarlierFailure(
        reason: failure.reason,
        date: failure.date,
        attempt: failure.attempt?.text
      )
    }
    if !earlier.isEmpty { try keep(earlier, .earlierFailures) }
    if let version = record.parkedVersion { try keep(version, .parkedVersion) }
    try keep(record.isPostponed, .isPostponed)
    try keep(record.finishedDate, .finishedDate)
    let remembered = memory.names.map { name in
      NamedValue(name: Data(name.utf8), bytes: Data(memory[name] ?? []))
    }
    if !remembered.isEmpty { try keep(remembered, .memory) }
    try keep(place, .place)
    try keep(number, .number)
    try keep(token, .token)
  }
}

let folder = FileManager.default.temporaryDirectory
  .appending(path: "own-store-\(UUID().uuidString)")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.test
@Test func `the document keeps its promises`() async {
  let report = await PersistenceConformance().check { place in
    DocumentStore(at: folder.appending(path: place))
  }
  #expect(report.passes, "\(report)")
}
// snippet.end

// snippet.check
let report = await PersistenceConformance().check { place in
  DocumentStore(at: folder.appending(path: place))
}
print(report)
// snippet.end
guard report.passes else { exit(1) }
