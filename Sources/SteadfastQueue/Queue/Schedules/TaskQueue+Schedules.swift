import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Recurring tasks.
extension TaskQueue {
  /// Makes a schedule, by which a task is performed again and again.
  ///
  /// ```swift
  /// let rule = try ScheduleRule.daily(at: .time(2, 30), in: berlin)
  /// try await queue.schedule("nightly", rule, Report())
  /// ```
  ///
  /// The schedule is stored, with the task of its next date, its *occurrence*. Whatever ends an
  /// occurrence adds the next one in the same change of the store: success, failure without retries
  /// left, cancellation. So a crash loses none, and of several processes on one store only one adds
  /// it. ``TaskContext/occurrence`` has the date.
  ///
  /// Call this at each launch. The same schedule once more changes nothing. If its rule, zone or
  /// spread has changed, the next date is found again, counted from the last one; nothing is
  /// performed because of the change. If anything else has changed, the occurrence that waits keeps
  /// its date. One that has begun goes on as it is.
  ///
  /// A schedule stays until ``unschedule(_:)``, also if the application does not make it any more.
  /// No occurrence has a unique key, even if the payload's type gives one.
  ///
  /// - Parameters:
  ///   - name: the schedule's name: 1 to 255 bytes of UTF-8 without control characters.
  ///   - rule: the dates. Its zone is stored by its identifier. A process that can't make the zone
  ///     again parks the schedule (``TaskEvent/scheduleParked(_:reason:)``).
  ///   - payload: what the handler is given, the same each time; a few thousand bytes at most, for
  ///     with all else they must fit in 64,500 bytes.
  ///   - missed: what becomes of dates on which the task could not be performed.
  ///   - spread: how long after the date an occurrence may begin, at most. Each installation has a
  ///     time of its own, always the same, so that not all begin at once.
  ///   - overlaps: whether an occurrence is performed while the one before is still under way; by
  ///     default, dates that come during that are missed.
  ///   - options: how its tasks are performed. A date, a delay, an expiry date, dependencies and
  ///     what concerns unique keys make no sense here.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``, or with
  ///   ``TaskQueueError/Code/nameTaken`` if the name looks like that of another schedule to the
  ///   store, which is very rare; what the payload's encoding and the store throw.
  public nonisolated func schedule<Payload: TaskPayload>(
    _ name: String,
    _ rule: ScheduleRule,
    _ payload: Payload,
    missed: MissedOccurrences = .once(),
    spread: Duration = .zero,
    overlaps: Bool = false,
    options: TaskOptions = TaskOptions()
  ) async throws {
    try Self.check(schedule: name)
    try missed.check()
    try TaskQueueError.check(delay: spread, "spread")
    let task = try TaskTemplate(
      Payload.taskName,
      StoredPayload(payload),
      recurringOptions(of: payload, options)
    )
    let definition = StoredSchedule.Definition(
      rule,
      missed,
      spread: spread,
      overlaps: overlaps,
      task
    )
    handlers.zones.add(rule.zone)
    try await open()
    let delay = try await delay(of: name, within: spread)
    try Self.check(StoredSchedule(name, definition, delay: delay, made: now))
    try await repeating(name) { attempt in
      try await put(name, definition, rule, delay, attempt)
    }
  }

  /// Removes a schedule, and its occurrence if that waits.
  ///
  /// An occurrence that has begun goes on, and is the last one. A schedule that can't be opened or
  /// read is removed, too; then the call goes through all tasks to find its occurrence.
  ///
  /// - Parameter name: the schedule's name.
  /// - Returns: Whether there was a schedule with this name.
  /// - Throws: What the store throws.
  @discardableResult
  public nonisolated func unschedule(_ name: String) async throws -> Bool {
    try Self.check(schedule: name)
    try await open()
    let key = ScheduleKey(name)
    var wasThere = false
    try await repeating(name) { _ in
      let old: [UInt8]
      let occurrences: [TaskRecord]
      switch try await scheduleValue(key) {
      case .schedule(let schedule, let bytes):
        guard schedule.name == name else { return true }
        old = bytes
        occurrences = try await waitingOccurrences(of: schedule)
      case .unreadable(let bytes, _):
        old = bytes
        occurrences = try await waitingOccurrences(of: key)
      case nil: return true
      }
      wasThere = true
      var changes: [TaskChange] = [.setValue(named: key.valueName, from: old, to: nil)]
      changes += try await indexChanges(removing: key)
      return try await store(changes, cancelling: occurrences)
    }
    return wasThere
  }

  /// Makes a change of a schedule again until no other process changes it in between.
  ///
  /// The body is called once more after a transient error of the store, too, and looks again.
  private nonisolated func repeating(
    _ name: String,
    _ body: (_ attempt: Int) async throws -> Bool
  ) async throws {
    var retries = 0
    for attempt in 0..<Self.mostRefusals {
      do {
        guard try await body(attempt) else { continue }
        // The answer that said what was added may have been lost.
        if retries > 0 { lookForWork() }
        return
      } catch {
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.comparesWrongly(
      store,
      "the schedule '\(name)'",
      changedBy: "other processes"
    )
  }
}

/// Looking at schedules, and at the beginning of a run.
extension TaskQueue {
  /// Returns the schedules of the queue, in the order of their names.
  ///
  /// They include those that another process, or an earlier version of the application, has made.
  /// - Throws: What the store throws.
  public nonisolated func schedules() async throws -> [TaskSchedule] {
    try await open()
    let schedules = try await storedSchedules().map { TaskSchedule($0.schedule) }
    return schedules.sorted { $0.name < $1.name }
  }

  /// Returns the next dates of a schedule: that of its current occurrence, and those after it.
  ///
  /// The dates are those of the rule, without the spread.
  ///
  /// - Parameters:
  ///   - name: the schedule's name.
  ///   - count: how many dates to return.
  /// - Returns: The dates; none if there is no such schedule, or if it is parked.
  /// - Throws: What the store throws.
  public nonisolated func occurrences(of name: String, count: Int) async throws -> [Date] {
    try await open()
    let key = ScheduleKey(name)
    guard count > 0, let schedule = try await storedSchedule(key)?.schedule,
      schedule.name == name, schedule.id != nil,
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return [] }
    var dates = [schedule.date]
    while dates.count < count, let date = dates.last.flatMap(rule.next) { dates.append(date) }
    return dates
  }

  /// Puts back occurrences that are missing, and goes on with schedules that were parked.
  ///
  /// It does so when a run of the queue begins.
  /// - Throws: What the store throws.
  nonisolated func restoreSchedules() async throws {
    let now = self.now
    upkeep.withLock { $0.schedulesDate = now }
    for (schedule, bytes) in try await storedSchedules() {
      let key = ScheduleKey(schedule.name)
      var (schedule, bytes) = (schedule, bytes)
      for attempt in 0..<Self.mostLooks {
        if try await restore(schedule, bytes, key, attempt) { break }
        guard let changed = try await storedSchedule(key) else { break }
        (schedule, bytes) = changed
      }
    }
  }

  /// Does so again if it was last done an hour ago: another process may have parked a schedule with
  /// which this one can go on.
  /// - Throws: What the store throws.
  nonisolated func restoreSchedulesEachHour() async throws {
    guard let last = upkeep.withLock({ $0.schedulesDate }),
      abs(now.timeIntervalSince(last)) >= 3_600
    else { return }
    try await restoreSchedules()
  }

  /// How often another process may change a schedule while this one looks at it.
  static let mostLooks = 100

  private nonisolated func storedSchedules() async throws -> [(
    schedule: StoredSchedule, bytes: [UInt8]
  )] {
    guard let root = try await store.value(named: ScheduleIndex.rootName) else { return [] }
    var found: [(schedule: StoredSchedule, bytes: [UInt8])] = []
    for part in try ScheduleIndex.parts(of: root) {
      let value = try await store.value(named: ScheduleIndex.name(ofPart: part))
      for key in try ScheduleIndex.keys(of: value, part) {
        // It may have been removed since.
        if let schedule = try await storedSchedule(key) { found.append(schedule) }
      }
    }
    return found
  }

  // MARK: The index

  nonisolated func indexChanges(adding key: ScheduleKey) async throws -> [TaskChange] {
    let root = try await store.value(named: ScheduleIndex.rootName)
    let parts = try root.map { try ScheduleIndex.parts(of: $0) } ?? []
    let name = ScheduleIndex.name(ofPart: key.part)
    let part = try await store.value(named: name)
    let keys = try ScheduleIndex.keys(of: part, key.part)
    var changes: [TaskChange] = []
    if !keys.contains(key) {
      changes.append(.setValue(named: name, from: part, to: ScheduleIndex.part(of: keys + [key])))
    }
    if !parts.contains(key.part) {
      changes.append(
        .setValue(
          named: ScheduleIndex.rootName,
          from: root,
          to: ScheduleIndex.root(of: parts + [key.part])
        )
      )
    }
    return changes
  }

  nonisolated func indexChanges(removing key: ScheduleKey) async throws -> [TaskChange] {
    let name = ScheduleIndex.name(ofPart: key.part)
    let part = try await store.value(named: name)
    let keys = try ScheduleIndex.keys(of: part, key.part)
    guard keys.contains(key) else { return [] }
    return [
      .setValue(named: name, from: part, to: ScheduleIndex.part(of: keys.filter { $0 != key }))
    ]
  }

  // MARK: The spread

  /// Returns how many seconds after its date a schedule begins.
  ///
  /// It depends on its name and on the installation, which is the store.
  nonisolated func delay(of name: String, within spread: Duration) async throws -> Int {
    let seconds = UInt64(spread.components.seconds)
    guard seconds > 0 else { return 0 }
    let installation = try await installation()
    return Int((installation + Array(name.utf8)).stableHash % (seconds + 1))
  }

  /// Returns what tells this store from others; the first call draws it.
  private nonisolated func installation() async throws -> [UInt8] {
    let name = Self.installationName
    if let present = try await store.value(named: name) { return present }
    var generator = generators.makeGenerator()
    let drawn = Array(Hexadecimal.text(generator.next(), digits: 16).utf8)
    // Another process may have drawn one since.
    try await setValue(named: name, .durable) { $0 ?? drawn }
    return try await store.value(named: name) ?? drawn
  }

  private static let installationName = "steadfast.installation"
}

/// Stores schedules that the application makes, and puts occurrences back.
extension TaskQueue {
  /// Stores a schedule, unless it is stored already.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  nonisolated func put(
    _ name: String,
    _ definition: StoredSchedule.Definition,
    _ rule: ScheduleRule,
    _ delay: Int,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(name)
    let now = self.now
    let value = try await scheduleValue(key)
    guard case .schedule(let schedule, let old)? = value else {
      var unread: (bytes: [UInt8], occurrences: [TaskRecord])?
      if case .unreadable(let bytes, _)? = value {
        unread = (bytes, try await waitingOccurrences(of: key))
      }
      var new = StoredSchedule(name, definition, delay: delay, made: now)
      new.begin(now: now, rule)
      var step = try step(of: key, from: unread?.bytes, to: new, now: now, attempt: attempt)
      step.changes += try await indexChanges(adding: key)
      return try await store(step, cancelling: unread?.occurrences ?? [])
    }
    guard schedule.name == name else { throw Self.keyIsTaken(name, by: schedule.name) }
    if schedule.delay ?? 0 == delay, try schedule.definition.isSame(as: definition) {
      return try await restore(schedule, old, key, attempt)
    }
    var changed = schedule
    changed.definition = definition
    changed.delay = delay == 0 ? nil : delay
    return try await replace(schedule, old, by: changed, rule, now: now, attempt)
  }

  /// Stores a schedule that has changed, and replaces its occurrence if that waits.
  ///
  /// The occurrence keeps its date if the dates of the schedule are the same.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  private nonisolated func replace(
    _ before: StoredSchedule,
    _ old: [UInt8],
    by changed: StoredSchedule,
    _ rule: ScheduleRule,
    now: Date,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(changed.name)
    let current = try await currentOccurrence(of: changed)
    if let current, current.hasBegun || current.state == .running || current.state == .paused {
      let bytes = try changed.bytes
      let change = TaskChange.setValue(named: key.valueName, from: old, to: bytes)
      return try await store([change], cancelling: [])
    }
    var schedule = changed
    let keepsDate = before.hasDates(of: changed) && !isAhead(before, current, of: now)
    let keptDate = keepsDate ? current?.availableDate : nil
    if keptDate == nil { schedule.begin(now: now, rule) }
    var step = try step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      availableDate: keptDate
    )
    step.before = before
    if current != nil, keptDate == nil {
      let count = before.droppedCount(now: now, handlers.zones.rule(of: before.definition))
      step.catchUp = CatchUp(next: schedule.date, skippedCount: count)
    }
    return try await store(step, cancelling: current.map { [$0] } ?? [])
  }

  /// Returns whether a schedule has gone on by a clock that was far ahead and was set right since,
  /// and its occurrence, if there is one, has the date that followed from that.
  ///
  /// Of several clocks, this one may be slow.
  private nonisolated func isAhead(
    _ schedule: StoredSchedule,
    _ current: TaskRecord?,
    of now: Date
  ) -> Bool {
    guard store.hasOneClock, schedule.isAhead(of: now) else { return false }
    guard let current else { return true }
    return current.state == .waiting && isUntouched(current, since: schedule.availableDate)
  }

  /// Puts back the occurrence of a schedule if it is missing, and goes on with one that was parked,
  /// or by a clock that was ahead.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  nonisolated func restore(
    _ schedule: StoredSchedule,
    _ old: [UInt8],
    _ key: ScheduleKey,
    _ attempt: Int
  ) async throws -> Bool {
    let now = self.now
    let current = try await currentOccurrence(of: schedule)
    if isAhead(schedule, current, of: now),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    {
      return try await replace(schedule, old, by: schedule, rule, now: now, attempt)
    }
    guard current == nil else { return true }
    let isParked = schedule.parkedReason != nil
    if isParked, case .failure = handlers.zones.rule(of: schedule.definition) {
      observers.events.post(
        .scheduleParked(schedule.name, reason: schedule.parkedReason ?? "")
      )
      return true
    }
    if schedule.availableDate > now, !isParked {
      return try await store(
        step(of: key, from: old, to: schedule, now: now, attempt: attempt),
        cancelling: []
      )
    }
    return try await store(
      step(of: key, from: old, schedule, wasHandled: true, attempt: attempt),
      cancelling: []
    )
  }

  /// Returns the current occurrence, if it is in the store and has not ended.
  private nonisolated func currentOccurrence(
    of schedule: StoredSchedule
  ) async throws -> TaskRecord? {
    guard let id = schedule.id, let record = try await record(of: id), !record.state.isFinished
    else { return nil }
    return record
  }

  /// Returns the current occurrence, if it has not begun.
  nonisolated func waitingOccurrences(of schedule: StoredSchedule) async throws -> [TaskRecord] {
    guard let record = try await currentOccurrence(of: schedule), record.isWaitingOccurrence else {
      return []
    }
    return [record]
  }

  /// Returns the occurrences that have not begun of a schedule that can't be read.
  nonisolated func waitingOccurrences(of key: ScheduleKey) async throws -> [TaskRecord] {
    var found: [TaskRecord] = []
    try await forEachPage(of: .unfinished, after: nil) { page in
      found += page.filter {
        $0.id.isOccurrence && $0.id.scheduleKey == key && $0.isWaitingOccurrence
      }
    }
    return found
  }

  private nonisolated func store(
    _ step: ScheduleStep,
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    var step = step
    step.endIndex = records.isEmpty ? nil : 0
    let answer = try await announcing([step]) {
      (try await send(step.changes, cancelling: records), false)
    }
    guard let answer else { return false }
    // An occurrence that was claimed in between goes on as it is.
    return !answer.outcomes.prefix(records.count).contains(.stale)
  }

  nonisolated func store(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    try await !send(changes, cancelling: records).contains(where: \.refusesStep)
  }

  /// Sends changes that also cancel waiting occurrences, without a trace of them.
  private nonisolated func send(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> [ChangeOutcome] {
    if records.isEmpty { return try await send(changes).outcomes }
    let now = now
    let cancellations = records.map {
      TaskChange.cancel(.unclaimed($0.id), at: now, retains: false)
    }
    return try await store(cancellations, for: records, along: changes)
  }
}

extension TaskRecord {
  /// Whether the occurrence has not begun.
  fileprivate var isWaitingOccurrence: Bool { !hasBegun && state != .running }
}

/// What makes no sense for a schedule, and the errors that say so.
extension TaskQueue {
  /// Returns the options of a schedule's tasks, filled in from the payload and the queue.
  nonisolated func recurringOptions<Payload: TaskPayload>(
    of payload: Payload,
    _ options: TaskOptions
  ) throws(TaskQueueError) -> TaskOptions {
    try options.checkForSchedule()
    var chosen = options
    chosen.fill(from: payload.options)
    chosen.fill(from: configuration.taskDefaults)
    let recurring = chosen.recurring
    try recurring.check(path: "")
    return recurring
  }

  static func check(schedule name: String) throws(TaskQueueError) {
    guard name.isEmpty || name.utf8.count > 255 || name.utf8.contains(where: { $0 < 0x20 }) else {
      return
    }
    throw TaskQueueError(
      .invalidArgument,
      "the name of a schedule has \(name.utf8.count) bytes, or a control character; give it 1 to "
        + "255, and none of those"
    )
  }

  /// Throws if a schedule is so large that a later step of it might not fit in a value.
  ///
  /// A step adds the ID of an occurrence, a count of missed dates, or why the schedule is parked,
  /// and a seal adds what it needs.
  static func check(_ schedule: StoredSchedule) throws {
    let count = try schedule.bytes.count
    guard count > 64_500 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the schedule '\(schedule.name)' has \(count) bytes with its payload in JSON; at most 64,500 fit"
    )
  }

  static func keyIsTaken(_ name: String, by other: String) -> TaskQueueError {
    TaskQueueError(
      .nameTaken,
      "the schedule '\(name)' can't be told from the schedule '\(other)' in this store: both names "
        + "have the same 36-bit hash; give it another name"
    )
  }
}

extension TaskOptions {
  /// Throws if a schedule can't do what an option asks.
  fileprivate func checkForSchedule() throws(TaskQueueError) {
    let names = [
      availableDate == nil ? nil : "availableDate",
      delay == nil ? nil : "delay",
      expiryDate == nil ? nil : "expiryDate",
      onDuplicate == nil ? nil : "onDuplicate",
      uniqueFor == nil ? nil : "uniqueFor",
      maxDelay == nil ? nil : "maxDelay",
      dependencies.isEmpty ? nil : "dependencies",
      dependencyRule == nil ? nil : "dependencyRule",
    ]
    guard let name = names.compactMap(\.self).first else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the option '\(name)' makes no sense for a schedule, whose tasks have the dates of its rule and "
        + "no unique key; leave it out"
    )
  }

  /// The options that count for the tasks of a schedule.
  fileprivate var recurring: TaskOptions {
    TaskOptions(
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      priority: priority,
      orderKey: orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure,
      conditions: conditions,
      tags: tags
    )
  }
}

/// A step of a schedule: the changes that make it, and what to tell when they are stored.
struct ScheduleStep {
  let key: ScheduleKey
  /// The schedule after the step.
  let schedule: StoredSchedule
  /// The changes, the first of which compares and sets the schedule.
  var changes: [TaskChange]
  /// The next occurrence; `nil` if the schedule is parked.
  let next: TaskRecord?
  /// What became of the dates until now.
  var catchUp: CatchUp?
  /// The value that holds the schedule, after the step.
  let bytes: [UInt8]
  /// The schedule before the step, if there was one.
  var before: StoredSchedule?
  /// The place in the batch of the change that ends the occurrence before, if there is one.
  var endIndex: Int?
}

/// A change of a batch that ends an occurrence.
struct OccurrenceEnd {
  /// The place of the change in the batch.
  let index: Int
  let id: TaskID
  /// The name of the queue whose task it is, if another queue ends it.
  let queue: String?
  /// When the latest of the occurrences was made that end in the batch, in milliseconds.
  ///
  /// A call that goes through all tasks, in the order of their IDs, must not come to those that
  /// follow from it, even if no time passes. So they are made later.
  var latest: UInt64
  /// Whether the occurrence was performed, or a caller has cancelled it; `false` if it was missed.
  let wasHandled: Bool

  /// Returns the end of an occurrence, if a change is that.
  init?(
    _ index: Int,
    _ change: TaskChange,
    ofQueue queue: @autoclosure () -> String? = nil,
    wasHandled: Bool = true
  ) {
    let id: TaskID
    switch change {
    case .succeed(let lease, _, _), .abandon(let lease, _, _): id = lease.id
    case .cancel(let target, _, _): id = target.id
    default: return nil
    }
    guard id.isOccurrence else { return nil }
    self.init(index, id, ofQueue: queue(), wasHandled: wasHandled)
  }

  /// Returns the ends of occurrences among settlements, in whose order a batch changes the tasks.
  static func all(in settlements: some Collection<Settlement>) -> [OccurrenceEnd] {
    // Most batches have none.
    guard settlements.contains(where: { $0.record.id.isOccurrence }) else { return [] }
    return settlements.enumerated().compactMap { index, settlement in
      OccurrenceEnd(index, settlement.change, wasHandled: settlement.wasBegun)
    }
  }

  init(_ index: Int, _ id: TaskID, ofQueue queue: String? = nil, wasHandled: Bool = true) {
    self.index = index
    self.id = id
    self.queue = queue
    latest = id.madeMilliseconds
    self.wasHandled = wasHandled
  }

  func replacing(latest: UInt64) -> OccurrenceEnd {
    var end = self
    end.latest = latest
    return end
  }

  /// The schedule of which the task is an occurrence.
  var key: ScheduleKey { id.scheduleKey(ofQueue: queue) }
}

/// Makes the steps of schedules, each of which goes on to the next date.
extension TaskQueue {
  /// Returns the step that follows from an occurrence; `nil` if it is not the current one.
  nonisolated func step(
    after end: OccurrenceEnd,
    attempt: Int
  ) async throws -> ScheduleStep? {
    guard let (schedule, old) = try await storedSchedule(end.key), schedule.id == end.id
    else { return nil }
    return try step(
      of: end.key,
      from: old,
      schedule,
      wasHandled: end.wasHandled,
      attempt: attempt,
      after: end.latest
    )
  }

  /// Returns the queue whose schedule it is; `nil` if this process does not have it.
  nonisolated func owner(of key: ScheduleKey) -> TaskQueue? { queue(named: key.queue) }

  /// Returns the queue whose task a record is; `nil` if this process does not have it.
  nonisolated func owner(of record: TaskRecord) -> TaskQueue? {
    queue(named: otherQueue(of: record))
  }

  /// Returns the queue of the group with a name, or this one without a name.
  private nonisolated func queue(named name: String?) -> TaskQueue? {
    guard let name else { return self }
    return backing.group?.members.queue(named: name)
  }

  /// Returns the name of the queue whose task a record is, if that is another one.
  nonisolated func otherQueue(of record: TaskRecord) -> String? {
    guard record.queue != backing.group?.queue ?? "" else { return nil }
    return TaskQueueGroup.name(ofStoredName: record.queue)
  }

  /// Returns the step to the next date of a schedule, whatever has become of its occurrence.
  nonisolated func step(
    of key: ScheduleKey,
    from old: [UInt8],
    _ schedule: StoredSchedule,
    wasHandled: Bool,
    attempt: Int,
    after latest: UInt64 = 0
  ) throws -> ScheduleStep {
    let now = self.now
    let before = schedule
    var schedule = schedule
    let rule = (owner(of: key) ?? self).handlers.zones.rule(of: schedule.definition)
    let catchUp = schedule.advance(wasHandled: wasHandled, now: now, rule)
    var step = try step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      after: latest
    )
    step.catchUp = catchUp
    step.before = before
    return step
  }

  /// Returns the step that sets a schedule and adds an occurrence of its date, unless it is parked.
  ///
  /// The schedule still has the ID of the occurrence before. The occurrence may begin at its date
  /// with the spread, unless there is another date.
  /// The number of the attempt makes another ID, if the store has refused the last one.
  nonisolated func step(
    of key: ScheduleKey,
    from old: [UInt8]?,
    to schedule: StoredSchedule,
    now: Date,
    attempt: Int,
    after latest: UInt64 = 0,
    availableDate: Date? = nil
  ) throws -> ScheduleStep {
    var schedule = schedule
    var next: TaskRecord?
    if schedule.parkedReason == nil {
      do throws(TaskQueueError) {
        // The clock may stand still, or have been ahead.
        let previous = max(latest, schedule.id?.madeMilliseconds ?? 0)
        let made = max(now.milliseconds, previous + 1) + UInt64(attempt)
        next = try occurrence(of: schedule, key, availableDate, made: made, now: now)
      } catch {
        schedule.park(because: error.message)
      }
    }
    schedule.id = next?.id
    let bytes = try schedule.bytes
    var changes: [TaskChange] = [.setValue(named: key.valueName, from: old, to: bytes)]
    if let next {
      let record = key.queue.map(next.replacing) ?? next
      changes.append(.insert(record, onDuplicate: .keep))
    }
    return ScheduleStep(
      key: key,
      schedule: schedule,
      changes: changes,
      next: next,
      bytes: bytes
    )
  }

  private nonisolated func occurrence(
    of schedule: StoredSchedule,
    _ key: ScheduleKey,
    _ availableDate: Date?,
    made milliseconds: UInt64,
    now: Date
  ) throws(TaskQueueError) -> TaskRecord {
    let template = schedule.definition.task
    return template.record(
      id: TaskID(occurrenceOf: key, at: schedule.date, made: milliseconds),
      payload: try template.payload,
      prohibitsBackoff: owner(of: key)?.configuration.prohibitsBackoff ?? false,
      availableDate: availableDate ?? schedule.availableDate,
      now: now
    )
  }

  /// Returns a schedule, and the bytes of its value; `nil` if there is none.
  ///
  /// A schedule that this process can't open or read counts as none: a process that can puts its
  /// occurrence back.
  /// - Throws: What the store throws.
  nonisolated func storedSchedule(
    _ key: ScheduleKey
  ) async throws -> (schedule: StoredSchedule, bytes: [UInt8])? {
    switch try await scheduleValue(key) {
    case .schedule(let schedule, let bytes): return (schedule, bytes)
    case .unreadable(_, let error):
      observers.events.post(.scheduleParked(key.valueName, reason: error.message))
      return nil
    case nil: return nil
    }
  }

  /// Returns the value that holds a schedule; `nil` if there is none.
  ///
  /// - Throws: What the store throws.
  nonisolated func scheduleValue(_ key: ScheduleKey) async throws -> ScheduleValue? {
    let bytes: [UInt8]?
    do {
      bytes = try await store.value(named: key.valueName)
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      return .unreadable(SealedStore.unopenedValue, error)
    }
    guard let bytes else { return nil }
    do throws(TaskQueueError) {
      return .schedule(try StoredSchedule(bytes, key), bytes)
    } catch {
      return .unreadable(bytes, error)
    }
  }
}

extension Date {
  fileprivate var milliseconds: UInt64 { UInt64(max(0, timeIntervalSince1970 * 1_000)) }
}

/// The value that holds a schedule.
enum ScheduleValue {
  case schedule(StoredSchedule, [UInt8])
  /// It can't be opened or read; the bytes stand for it in a comparison.
  case unreadable([UInt8], TaskQueueError)
}

/// Decides, before an attempt, what becomes of the dates of a schedule that have passed.
extension TaskQueue {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// No attempt is made; the function returns the change that settles the task.
    case leaveOut((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence begins, or a later one takes its place.
  ///
  /// If the store fails, that stops the run.
  nonisolated func start(_ record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await occurrence(of: record, now: now) { return .perform(occurrence) }
      return .leaveOut { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      fail(error, to: "say what is missed of a schedule")
      return .leaveOut { .release($0) }
    }
  }

  /// Returns what an occurrence is that begins, and adds the next one if the two may overlap.
  ///
  /// One that is not the current occurrence begins: it was current when it was claimed, or was
  /// restarted after it had ended.
  ///
  /// - Returns: The occurrence; `nil` if a later one takes its place.
  /// - Throws: What the store throws.
  private nonisolated func occurrence(
    of record: TaskRecord,
    now: Date
  ) async throws -> TaskOccurrence? {
    let key = record.id.scheduleKey
    let date = record.id.occurrenceDate ?? record.availableDate
    guard let schedule = try await storedSchedule(key)?.schedule else {
      return TaskOccurrence(date: date, delay: .zero, missedCount: 0, now: now)
    }
    if isReplaced(record, schedule, now: now) { return nil }
    let isCurrent = schedule.id == record.id
    if isCurrent, schedule.overlaps {
      _ = try await sendStep(after: OccurrenceEnd(0, record.id), with: [])
    }
    return TaskOccurrence(
      date: date,
      delay: .seconds(schedule.delay ?? 0),
      missedCount: isCurrent ? schedule.missedCount ?? 0 : 0,
      now: now
    )
  }

  /// Returns whether a later occurrence takes the place of one that was claimed.
  ///
  /// - Throws: What the store throws.
  nonisolated func isReplaced(_ record: TaskRecord, now: Date) async throws -> Bool {
    guard record.id.isOccurrence,
      let schedule = try await storedSchedule(record.id.scheduleKey)?.schedule
    else { return false }
    return isReplaced(record, schedule, now: now)
  }

  private nonisolated func isReplaced(
    _ record: TaskRecord,
    _ schedule: StoredSchedule,
    now: Date
  ) -> Bool {
    guard schedule.id == record.id, isUntouched(record, since: schedule.availableDate),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return false }
    return !schedule.mayBegin(now: now, rule)
  }

  /// Returns whether nothing has happened to an occurrence since it was added, and no caller has
  /// moved it.
  ///
  /// A limit with a key moves tasks to later dates, which are not told from those that a caller has
  /// chosen.
  nonisolated func isUntouched(_ record: TaskRecord, since date: Date) -> Bool {
    guard !record.hasBegun, record.availableDate >= date else { return false }
    guard record.availableDate > date else { return true }
    return rateLimiting?.withLimits { $0.hasKey(for: record) } ?? false
  }
}

extension TaskRecord {
  /// Whether an attempt has begun, as far as the record shows.
  var hasBegun: Bool {
    retryCount > 0 || interruptionCount > 0 || isPostponed || memorySize > 0
      || state == .suspended
  }
}

extension RateLimits {
  /// Returns whether a limit with a key concerns a task.
  fileprivate func hasKey(for record: TaskRecord) -> Bool {
    places(of: record).contains { scopes[$0.scope].key != nil }
  }
}

/// Adds the next occurrence of a schedule in the same batch that ends the current one.
extension TaskQueue {
  /// What the store answers to a batch.
  typealias StoreAnswer = (outcomes: [ChangeOutcome], wasResent: Bool)

  /// Has the store apply a batch that ends occurrences.
  ///
  /// The changes of a schedule compare its value, and a value that differs leaves the whole batch
  /// unstored. Then each occurrence gets a batch of its own, with another look at its schedule.
  nonisolated func send(
    _ batch: [TaskChange],
    ending ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer {
    guard let latest = ends.map(\.latest).max() else { return try await send(batch) }
    let ends = ends.map { $0.replacing(latest: latest) }
    // What is sent again after a transient error must not depend on other schedules.
    if batch.count > 1, backing.patientStore == nil,
      let answer = try await sendTogether(batch, ends)
    {
      return answer
    }
    var outcomes = [ChangeOutcome?](repeating: nil, count: batch.count)
    var wasResent = false
    for end in ends {
      let answer = try await sendStep(after: end, with: [batch[end.index]])
      outcomes[end.index] = answer.outcomes[0]
      wasResent = wasResent || answer.wasResent
    }
    let others = batch.indices.filter { outcomes[$0] == nil }
    if !others.isEmpty {
      let answer = try await send(others.map { batch[$0] })
      for (index, outcome) in zip(others, answer.outcomes) { outcomes[index] = outcome }
      wasResent = wasResent || answer.wasResent
    }
    return (outcomes.compactMap(\.self), wasResent)
  }

  /// Sends all changes as one batch.
  ///
  /// - Returns: The answer; `nil` if the store has refused them, because a schedule has changed.
  private nonisolated func sendTogether(
    _ batch: [TaskChange],
    _ ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer? {
    var steps: [ScheduleStep] = []
    // Schedules of several queues that have the same name may have occurrences with the same ID.
    var counts: [UInt64: Int] = [:]
    for end in ends {
      let attempt = counts[end.key.bits, default: 0]
      guard var step = try await step(after: end, attempt: attempt) else { continue }
      counts[end.key.bits] = attempt + 1
      step.endIndex = end.index
      steps.append(step)
    }
    let results = try await announcing(steps) {
      try await send(batch + steps.flatMap(\.changes))
    }
    guard let results else { return nil }
    return (Array(results.outcomes.prefix(batch.count)), results.wasResent)
  }

  /// Sends changes together with the step of a schedule that follows from an occurrence.
  ///
  /// It looks at the schedule again until no other process changes it in between. The occurrence
  /// has ended, or begins and may overlap with the next one. If it is not the current one, the
  /// changes are sent alone.
  nonisolated func sendStep(
    after end: OccurrenceEnd,
    with changes: [TaskChange]
  ) async throws -> StoreAnswer {
    var retries = 0
    var unanswered: ScheduleStep?
    for attempt in 0..<Self.mostRefusals {
      var step = try await step(after: end, attempt: attempt)
      step?.endIndex = changes.isEmpty ? nil : 0
      if step == nil, let sent = unanswered,
        try await store.value(named: end.key.valueName) == sent.bytes
      {
        // It was stored, although the answer was lost.
        willEnqueue(sent)
        tell(sent)
        unanswered = nil
      }
      guard let step else {
        if changes.isEmpty { return ([], false) }
        let answer = try await send(changes)
        return (answer.outcomes, answer.wasResent || retries > 0)
      }
      do {
        let answer = try await announcing([step]) { try await send(changes + step.changes) }
        if let answer { return (Array(answer.outcomes.prefix(changes.count)), retries > 0) }
      } catch {
        try await waitToRepeat(after: error, &retries)
        unanswered = step
      }
    }
    throw TaskQueueError.comparesWrongly(store, "a schedule", changedBy: "other processes")
  }

  /// Sends a batch with steps of schedules, and tells them when they are stored.
  ///
  /// A step that was stored without the end of its occurrence is taken back, and not told.
  ///
  /// - Returns: The answer; `nil` if the store has refused the batch.
  nonisolated func announcing(
    _ steps: [ScheduleStep],
    _ send: () async throws -> StoreAnswer
  ) async throws -> StoreAnswer? {
    for step in steps { willEnqueue(step) }
    let answer: StoreAnswer
    do {
      answer = try await send()
    } catch {
      for step in steps { didNotEnqueue(step) }
      throw error
    }
    guard !answer.outcomes.contains(where: \.refusesStep) else {
      for step in steps { didNotEnqueue(step) }
      return nil
    }
    for step in steps {
      if let index = step.endIndex, answer.outcomes[index] == .stale, try await takeBack(step) {
        didNotEnqueue(step)
      } else {
        tell(step)
      }
    }
    return answer
  }

  private nonisolated func willEnqueue(_ step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.willEnqueue([next])
  }

  private nonisolated func didNotEnqueue(_ step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.didNotEnqueue(CollectionOfOne(next))
  }

  /// Tells a step to the observers of the queue whose schedule it is.
  ///
  /// If this process does not have that queue, it tells them to the observers of this one.
  private nonisolated func tell(_ step: ScheduleStep) {
    let owner = owner(of: step.key)
    (owner ?? self).post(step)
    guard let next = step.next else { return }
    (owner ?? self).observers.events.announce(next.id)
    owner?.reportIfUnhandled(next)
    owner?.becomesAvailable(at: next.availableDate)
  }

  private nonisolated func post(_ step: ScheduleStep) {
    let name = step.schedule.name
    if let catchUp = step.catchUp {
      if catchUp.missedCount > 0 {
        observers.events.post(
          .occurrencesMissed(
            schedule: name,
            count: catchUp.missedCount,
            madeUpBy: step.schedule.id
          )
        )
      }
      if catchUp.skippedCount > 0 {
        observers.events.post(
          .occurrencesMissed(schedule: name, count: catchUp.skippedCount, madeUpBy: nil)
        )
      }
    }
    if let reason = step.schedule.parkedReason {
      observers.events.post(.scheduleParked(name, reason: reason))
    }
  }
}

extension ChangeOutcome {
  /// Whether the store has refused the whole batch: a schedule has changed, or an ID is taken.
  var refusesStep: Bool {
    switch self {
    case .valueDiffers, .identityTaken, .batchRefused: true
    default: false
    }
  }
}

/// Takes back steps of schedules that were stored without the ends of their occurrences.
extension TaskQueue {
  /// Takes a step of a schedule back, unless its occurrence has ended all the same.
  ///
  /// A stale change is left out of its batch, and the rest of the batch is stored. If another
  /// process performs the occurrence, a later one must not be added beside it, and the end that the
  /// other process stores must find the schedule as it was.
  ///
  /// If this process dies before it is done, the later occurrence stays. It begins on its date even
  /// if the one before is still under way then, whose end adds nothing. So two may overlap once. No
  /// date is lost, and none is performed twice.
  ///
  /// The batch can't depend on the end. A store compares only values, and no value changes when an
  /// occurrence is claimed. If both occurrences had one unique key, or the later one waited for the
  /// other, it would depend on the end; but a batch must not have a new task that one of its other
  /// changes concerns in these ways (``Persistence``). And if the end were stored first, a process
  /// that died then would leave a schedule without an occurrence, which is worse.
  ///
  /// - Returns: Whether it was taken back. If not, the schedule has gone on.
  /// - Throws: What the store throws.
  nonisolated func takeBack(_ step: ScheduleStep) async throws -> Bool {
    guard let before = step.before, let id = before.id, try await isUnfinished(id),
      try await goBack(from: step, to: before)
    else { return false }
    // If it has ended in between, nothing has come after it.
    if try await !isUnfinished(id) {
      let end = OccurrenceEnd(0, id, ofQueue: step.key.queue)
      _ = try await sendStep(after: end, with: [])
    }
    return true
  }

  private nonisolated func isUnfinished(_ id: TaskID) async throws -> Bool {
    let filter = TaskFilter(ids: [id], queue: nil, states: TaskState.unfinished)
    return try await store.contains(filter)
  }

  /// Sets a schedule as it was before a step, and removes the occurrence that the step has added.
  ///
  /// - Returns: Whether it is done; `false` if the schedule has gone on, or that one has begun.
  private nonisolated func goBack(
    from step: ScheduleStep,
    to before: StoredSchedule
  ) async throws -> Bool {
    let key = step.key
    var retries = 0
    for _ in 0..<Self.mostLooks {
      guard let (present, bytes) = try await storedSchedule(key),
        present.id == step.schedule.id, present.date == step.schedule.date
      else { return false }
      let earlier = bytes == step.bytes ? before : present.goingBack(to: before)
      let earlierBytes = try earlier.bytes
      var changes = [TaskChange.setValue(named: key.valueName, from: bytes, to: earlierBytes)]
      if let next = step.next {
        changes.append(.cancel(.unclaimed(next.id), at: now, retains: false))
      }
      do {
        let outcomes = try await send(changes).outcomes
        if outcomes.contains(.valueDiffers) { continue }
        guard outcomes.last == .stale else { return true }
        // The later occurrence has begun, so it stays the current one.
        _ = try await send([.setValue(named: key.valueName, from: earlierBytes, to: bytes)])
        return false
      } catch {
        try await waitToRepeat(after: error, &retries)
      }
    }
    return false
  }
}

/// The time zones that the rules of a queue's schedules need.
///
/// On Linux, a zone can be made from its identifier only if the executable links the library that
/// has the zones. So zones that the application has given are held as well.
struct TimeZones: ~Copyable, Sendable {
  private let known = Mutex<[String: TimeZone]>([:])

  /// Holds the zone of a rule that the application has given.
  ///
  /// One that follows the system's settings would change later, so the zone that it is now is held.
  func add(_ zone: TimeZone) {
    let identifier = zone.identifier
    known.withLock { $0[identifier] = TimeZone(identifier: identifier) ?? zone }
  }

  /// Returns the rule of a schedule; or why it can't be made.
  func rule(of definition: StoredSchedule.Definition) -> Result<ScheduleRule, ParkedSchedule> {
    let identifier = definition.zone
    guard let zone = zone(identifier) else {
      return .failure(
        ParkedSchedule(
          reason: "its time zone '\(identifier)' can't be made in this process; link Foundation or "
            + "FoundationInternationalization into the executable (import it in one of its files), "
            + "or call schedule(_:_:_:) with the zone, and run the queue again"
        )
      )
    }
    guard let rule = ScheduleRule(text: definition.rule, in: zone) else {
      return .failure(
        ParkedSchedule(reason: "this version knows no rule '\(definition.rule)'")
      )
    }
    return .success(rule)
  }

  private func zone(_ identifier: String) -> TimeZone? {
    if identifier == TimeZone.gmt.identifier { return .gmt }
    if let zone = known.withLock({ $0[identifier] }) { return zone }
    guard let zone = TimeZone(identifier: identifier) else { return nil }
    known.withLock { $0[identifier] = zone }
    return zone
  }
}
