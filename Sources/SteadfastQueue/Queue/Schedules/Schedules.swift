import Synchronization
import SystemFoundation

/// Stores schedules, and restores the occurrences that are missing: the tasks for their next dates.
final class Schedules: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences
  let results: Results

  init(_ results: Results, _ occurrences: Occurrences) {
    services = results.services
    upkeep = results.upkeep
    self.occurrences = occurrences
    self.results = results
  }
}

/// Adds, removes and lists schedules.
extension Schedules {
  func schedule<Payload: TaskPayload>(
    _ name: String,
    _ rule: ScheduleRule,
    _ payload: Payload,
    _ missed: MissedOccurrences,
    _ spread: Duration,
    overlaps: Bool,
    _ options: TaskOptions
  ) async throws {
    try Self.check(schedule: name)
    try missed.check()
    try TaskQueueError.check(delay: spread, "spread")
    let task = try template(NewTask(payload, nil, options), calledWith: options)
    let definition = StoredSchedule.Definition(
      rule,
      missed,
      spread: spread,
      overlaps: overlaps,
      task
    )
    handlers.zones.add(rule.zone)
    let delay = try await delay(of: name, within: spread)
    try Self.checkSize(of: StoredSchedule(name, definition, delay: delay, createdAt: now))
    try await changeSchedule(named: name) { attempt in
      try await storeSchedule(name, definition, rule, delay, attempt)
    }
  }

  func unschedule(_ name: String) async throws -> Bool {
    try Self.check(schedule: name)
    let key = ScheduleKey(name)
    var wasThere = false
    try await changeSchedule(named: name) { _ in
      let old: [UInt8]
      let waiting: [TaskRecord]
      var changes: [TaskChange] = []
      switch try await occurrences.scheduleValue(for: key) {
      case .schedule(let schedule, let bytes):
        guard schedule.name == name else { return true }
        old = bytes
        let current = try await currentOccurrence(of: schedule)
        waiting = [current].compactMap(\.self).filter(\.isWaitingOccurrence)
        if let id = try await occurrenceUnderWay(in: schedule, current) {
          changes.append(try await change(toBegunOccurrence: id, of: key))
        }
      case .unreadable(let bytes, _):
        old = bytes
        waiting = try await waitingOccurrences(of: key)
      case nil: return true
      }
      wasThere = true
      changes.append(.setValue(named: key.valueName, from: old, to: nil))
      let outcomes = try await send(changes, cancelling: waiting)
      guard !outcomes.contains(where: \.refusesStep) else { return false }
      // An occurrence that was claimed in the meantime is under way.
      for (record, outcome) in zip(waiting, outcomes) where !outcome.isDone {
        _ = try await storage.persist([try await change(toBegunOccurrence: record.id, of: key)])
      }
      return true
    }
    return wasThere
  }

  /// Returns the schedules, in the order of their names.
  func allSchedules() async throws -> [TaskSchedule] {
    let schedules = try await storedSchedules().map { TaskSchedule($0.schedule) }
    return schedules.sorted { $0.name < $1.name }
  }

  /// Returns the next dates of a schedule.
  func nextDates(of name: String, count: Int) async throws -> [Date] {
    let key = ScheduleKey(name)
    guard count > 0, let schedule = try await occurrences.storedSchedule(for: key)?.schedule,
      schedule.name == name, schedule.id != nil,
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return [] }
    var dates = [schedule.date]
    while dates.count < count, let date = dates.last.flatMap(rule.next) { dates.append(date) }
    return dates
  }
}

/// Reads schedules, and restores missing occurrences.
extension Schedules {
  /// Calls a closure that reads and changes a schedule, until it returns `true`.
  ///
  /// The closure returns `false` if another process has changed the schedule in between.
  private func changeSchedule(
    named name: String,
    _ body: (_ attempt: Int) async throws -> Bool
  ) async throws {
    for attempt in 0..<QueueStore.maxConflictRetries where try await body(attempt) { return }
    throw TaskQueueError.endlessConflictError(
      in: store,
      over: "the schedule '\(name)'",
      changedBy: "other processes"
    )
  }

  /// Advances the schedules whose next occurrences were cancelled or removed, and resumes parked
  /// ones.
  ///
  /// A run calls this when it starts, and when an occurrence may have been cancelled.
  ///
  /// - Parameter reportsParked: Whether observers are notified of schedules that stay parked.
  /// - Throws: What the store throws.
  func restoreSchedules(reportsParked: Bool = false) async throws {
    let now = self.now
    upkeep.state.withLock { state in
      state.schedulesDate = now
      state.schedulesAreDue = false
    }
    do {
      try await restoreStoredSchedules(reportsParked: reportsParked)
    } catch {
      upkeep.state.withLock { $0.schedulesAreDue = true }
      throw error
    }
  }

  private func restoreStoredSchedules(reportsParked: Bool) async throws {
    let stored = try await storedSchedules(reportsParked: reportsParked)
    let unfinished = Set(try await occurrences.unfinished(stored.compactMap(\.schedule.id)))
    for (schedule, bytes) in stored {
      // Most schedules have their next occurrence.
      if let id = schedule.id, unfinished.contains(id), !schedule.isAhead(of: now) { continue }
      let key = ScheduleKey(schedule.name)
      var (schedule, bytes) = (schedule, bytes)
      for attempt in 0..<QueueStore.maxConflictRetries {
        if try await restoreOccurrence(
          of: schedule,
          bytes,
          key,
          attempt,
          reportsParked: reportsParked
        ) {
          break
        }
        guard let changed = try await occurrences.storedSchedule(for: key) else { break }
        (schedule, bytes) = changed
      }
    }
  }

  /// Calls `restoreSchedules()` if the last call was at least a minute ago.
  ///
  /// In the meantime, another process may have cancelled an occurrence, or parked a schedule that
  /// this process can resume.
  ///
  /// - Throws: What the store throws.
  func restoreSchedulesEachMinute() async throws {
    guard let last = upkeep.state.withLock({ $0.schedulesDate }),
      abs(now.timeIntervalSince(last)) >= 60
    else { return }
    try await restoreSchedules()
  }

  private func storedSchedules(
    reportsParked: Bool = true
  ) async throws -> [(schedule: StoredSchedule, bytes: [UInt8])] {
    var found: [(schedule: StoredSchedule, bytes: [UInt8])] = []
    for (name, bytes) in try await store.values(prefix: ScheduleKey.valuePrefix) {
      guard let key = ScheduleKey(valueName: name) else { continue }
      // To get the error of a value that can't be opened, read the value by itself.
      let value =
        bytes == SealedStore.unopenedValue
        ? try await occurrences.scheduleValue(for: key) : ScheduleValue(bytes, key)
      let schedule = occurrences.schedule(from: value, key, reportsParked: reportsParked)
      if let schedule { found.append(schedule) }
    }
    return found
  }
}

/// Determines the delays of schedules.
extension Schedules {
  /// Returns the number of seconds from each date of a schedule until the occurrence may start.
  ///
  /// The number depends only on the schedule's name, the spread and the ID of the installation, so
  /// it is the same each time.
  private func delay(of name: String, within spread: Duration) async throws -> Int {
    let seconds = UInt64(spread.components.seconds)
    guard seconds > 0 else { return 0 }
    let installation = try await installationID()
    return Int((installation + Array(name.utf8)).stableHash % (seconds + 1))
  }

  /// Returns random bytes that identify this store; the first call generates and stores them.
  private func installationID() async throws -> [UInt8] {
    let name = Self.installationName
    if let stored = try await store.value(named: name) { return stored }
    var generator = generators.makeGenerator()
    let drawn = Array(Hexadecimal.text(generator.next(), digits: 16).utf8)
    // Another process may have stored other bytes in the meantime. In that case, keep those.
    try await storage.setValue(named: name, .durable) { $0 ?? drawn }
    return try await store.value(named: name) ?? drawn
  }

  private static let installationName = "steadfast.installation"
}

/// Stores schedules, and restores occurrences.
extension Schedules {
  /// Stores a schedule, unless the same schedule is already stored.
  ///
  /// - Returns: `true` if the schedule is stored; `false` if another process has changed it.
  private func storeSchedule(
    _ name: String,
    _ definition: StoredSchedule.Definition,
    _ rule: ScheduleRule,
    _ delay: Int,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(name)
    let now = self.now
    let value = try await occurrences.scheduleValue(for: key)
    guard case .schedule(let schedule, let old)? = value else {
      var unread: (bytes: [UInt8], occurrences: [TaskRecord])?
      if case .unreadable(let bytes, _)? = value {
        unread = (bytes, try await waitingOccurrences(of: key))
      }
      var new = StoredSchedule(name, definition, delay: delay, createdAt: now)
      let begun = try await store.value(named: key.begunName)
      new.begun = begun.flatMap(StoredSchedule.Begun.init)
      new.advanceToFirstDate(after: now, of: rule)
      var step = try occurrences.step(
        of: key,
        from: unread?.bytes,
        to: new,
        now: now,
        attempt: attempt,
        after: try await tasksToWaitFor(in: new)
      )
      if let begun { step.changes.append(.setValue(named: key.begunName, from: begun, to: nil)) }
      return try await store(step, cancelling: unread?.occurrences ?? [])
    }
    guard schedule.name == name else { throw Self.keyTakenError(name, by: schedule.name) }
    if schedule.delay ?? 0 == delay, try schedule.definition.hasSameBytes(as: definition) {
      return try await restoreOccurrence(of: schedule, old, key, attempt)
    }
    let current = try await currentOccurrence(of: schedule)
    if schedule.parkedReason == nil, current == nil {
      // The next occurrence was cancelled. Skip its date before the schedule changes.
      _ = try await restoreOccurrence(of: schedule, old, key, attempt)
      return false
    }
    var changed = schedule
    changed.definition = definition
    changed.delay = delay == 0 ? nil : delay
    return try await replace(schedule, old, current, by: changed, rule, now: now, attempt)
  }

  /// Stores a schedule that has changed, and replaces its occurrence unless that has started.
  ///
  /// If the schedule's dates have not changed, the new occurrence gets the date of the replaced
  /// one.
  ///
  /// - Returns: `true` if the schedule is stored; `false` if another process has changed it.
  private func replace(
    _ before: StoredSchedule,
    _ old: [UInt8],
    _ current: TaskRecord?,
    by changed: StoredSchedule,
    _ rule: ScheduleRule,
    now: Date,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(changed.name)
    if let current, current.hasBegun || current.state == .running || current.state == .paused {
      let bytes = try changed.bytes
      let change = TaskChange.setValue(named: key.valueName, from: old, to: bytes)
      return try await store([change], cancelling: [])
    }
    var schedule = changed
    let replaced = try await occurrences.unfinished(schedule.replaced ?? [])
    schedule.replaced = replaced
    let others = try await tasksToWaitFor(in: schedule)
    // The new occurrence can't wait for a task that its own batch cancels.
    if let current { schedule.replaced = replaced + [current.id] }
    let keepsDate = before.hasSameDates(as: changed) && !isAhead(before, current, of: now)
    let keptDate = keepsDate ? current?.availableDate : nil
    if keptDate == nil { schedule.advanceToFirstDate(after: now, of: rule) }
    var step = try occurrences.step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      after: others,
      availableDate: keptDate
    )
    if current != nil, keptDate == nil {
      let count = before.droppedCount(now: now, handlers.zones.rule(of: before.definition))
      step.catchUp = CatchUp(next: schedule.date, skippedCount: count)
    }
    return try await store(step, cancelling: current.map { [$0] } ?? [])
  }

  /// Returns whether a schedule has advanced too far, because the clock was far ahead and has since
  /// been corrected.
  ///
  /// This returns `false` if the next occurrence was rescheduled or has started. It also returns
  /// `false` if the store is used with several clocks, because this process's clock may be behind.
  private func isAhead(
    _ schedule: StoredSchedule,
    _ current: TaskRecord?,
    of now: Date
  ) -> Bool {
    guard store.hasOneClock, schedule.isAhead(of: now) else { return false }
    guard let current else { return true }
    return current.state == .waiting
      && occurrences.isUntouched(current, since: schedule.availableDate)
  }

  /// Advances a schedule if its next occurrence is missing.
  ///
  /// This also resumes a parked schedule, and corrects a schedule that has advanced too far because
  /// the clock was ahead.
  ///
  /// - Returns: `false` if another process has changed the schedule in between; otherwise `true`.
  private func restoreOccurrence(
    of schedule: StoredSchedule,
    _ old: [UInt8],
    _ key: ScheduleKey,
    _ attempt: Int,
    reportsParked: Bool = true
  ) async throws -> Bool {
    let now = self.now
    let current = try await currentOccurrence(of: schedule)
    if isAhead(schedule, current, of: now),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    {
      return try await replace(schedule, old, current, by: schedule, rule, now: now, attempt)
    }
    guard current == nil else { return true }
    let isParked = schedule.parkedReason != nil
    if isParked, case .failure = handlers.zones.rule(of: schedule.definition) {
      if reportsParked {
        observers.events.post(
          .scheduleParked(schedule.name, reason: schedule.parkedReason ?? "")
        )
      }
      return true
    }
    // The next occurrence was cancelled or removed, so its date was handled.
    let step = try occurrences.stepToNextDate(
      of: key,
      from: old,
      schedule,
      wasHandled: true,
      attempt: attempt,
      after: try await tasksToWaitFor(in: schedule)
    )
    // A schedule without a further date stays as it is.
    return try await step.bytes == old ? true : store(step, cancelling: [])
  }

  /// Returns the tasks until whose end a new occurrence of a schedule waits.
  ///
  /// These are the occurrence that began last, unless overlaps are allowed, and occurrences that
  /// were replaced, but that a queue may have claimed.
  private func tasksToWaitFor(in schedule: StoredSchedule) async throws -> Set<TaskID> {
    let begun = schedule.overlaps ? nil : schedule.begun?.id
    return Set(
      try await occurrences.unfinished((schedule.replaced ?? []) + (begun.map { [$0] } ?? []))
    )
  }

  /// Returns the ID of an occurrence of a schedule that has begun and not ended; `nil` if there is
  /// none.
  ///
  /// In a schedule that an earlier version has stored, it may be the one to which the schedule
  /// refers.
  private func occurrenceUnderWay(
    in schedule: StoredSchedule,
    _ current: TaskRecord?
  ) async throws -> TaskID? {
    if let id = schedule.begun?.id, try await !occurrences.unfinished([id]).isEmpty { return id }
    return current.flatMap { $0.isWaitingOccurrence ? nil : $0.id }
  }

  /// Returns the change that stores the ID of the occurrence that has begun, while its schedule is
  /// removed.
  private func change(
    toBegunOccurrence id: TaskID,
    of key: ScheduleKey
  ) async throws -> TaskChange {
    let old = try await store.value(named: key.begunName)
    return .setValue(named: key.begunName, from: old, to: Array(id.description.utf8))
  }

  /// Returns the next occurrence of a schedule, if it has not ended.
  private func currentOccurrence(
    of schedule: StoredSchedule
  ) async throws -> TaskRecord? {
    guard let id = schedule.id, let record = try await storage.record(of: id),
      !record.state.isFinished
    else { return nil }
    return record
  }

  /// Returns the occurrences of an unreadable schedule that have not started.
  private func waitingOccurrences(of key: ScheduleKey) async throws -> [TaskRecord] {
    var found: [TaskRecord] = []
    try await forEachPage(of: .unfinished, after: nil) { page in
      found += page.filter {
        $0.id.isOccurrence && $0.id.scheduleKey == key && $0.isWaitingOccurrence
      }
    }
    return found
  }

  private func store(
    _ step: ScheduleStep,
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    try await occurrences.send(step) { try await send($0, cancelling: records) }
  }

  private func store(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    try await !send(changes, cancelling: records).contains(where: \.refusesStep)
  }

  /// Sends changes in one batch with the cancellations of waiting occurrences.
  private func send(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> [ChangeOutcome] {
    if records.isEmpty { return try await storage.persist(changes) }
    let now = now
    let cancellations = records.map {
      TaskChange.cancel(.unclaimed($0.id), at: now, retains: false)
    }
    return try await results.store(cancellations, for: records, alongside: changes)
  }
}

extension TaskRecord {
  /// Whether the occurrence has not started.
  fileprivate var isWaitingOccurrence: Bool { !hasBegun && state != .running }
}

/// Checks the arguments for a schedule.
extension Schedules {
  /// Makes the template of a schedule's tasks, with the queue's defaults for options that are not
  /// set.
  ///
  /// - Throws: An error that names an option that a schedule does not support. Dates and options
  ///   for unique keys are refused only in `options`. If the payload or the queue sets them, they
  ///   are ignored, because they may be meant for other tasks.
  private func template(
    _ draft: NewTask,
    calledWith options: TaskOptions
  ) throws -> TaskTemplate {
    try options.checkForSchedule()
    let recurring = draft.filled(from: configuration.taskDefaults).options.recurring
    try recurring.check(path: "")
    return try TaskTemplate(draft.name, draft.payload, recurring)
  }

  private static func check(schedule name: String) throws(TaskQueueError) {
    guard 1...255 ~= name.utf8.count else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a schedule has \(name.utf8.count) bytes; give 1 to 255"
      )
    }
    guard !name.utf8.contains(where: { $0 < 0x20 }) else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a schedule contains a control character; remove the character"
      )
    }
  }

  /// Throws if a schedule is too large to be stored as a value, now or when it has grown.
  ///
  /// The limit leaves bytes for IDs of occurrences, counts of missed dates, the reason why the
  /// schedule is parked, and encryption.
  private static func checkSize(of schedule: StoredSchedule) throws {
    let count = try schedule.bytes.count
    guard count > 64_500 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the schedule '\(schedule.name)' has \(count) bytes, with its payload in JSON; give at most "
        + "64,500, for example with a payload that only refers to its data"
    )
  }

  private static func keyTakenError(_ name: String, by other: String) -> TaskQueueError {
    TaskQueueError(
      .nameTaken,
      "the store can't distinguish the schedule '\(name)' from the schedule '\(other)', because "
        + "both names have the same 36-bit hash; use another name for the new schedule"
    )
  }
}

extension TaskOptions {
  /// Throws an error that names the first option that is set but not supported for a schedule.
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
      "a schedule does not support the option '\(name)', because its tasks have the dates of its "
        + "rule, no unique key and no dependencies; leave the option out"
    )
  }

  /// The options that a schedule supports.
  fileprivate var recurring: TaskOptions {
    TaskOptions(
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      priority: priority,
      orderKey: orderKey,
      blocksOrderOnFailure: blocksOrderOnFailure,
      conditions: conditions,
      tags: tags,
      metadata: metadata
    )
  }
}
