import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Claims within the queue's rate limits.
///
/// Tasks are claimed first, as many as may begin by what is known. Then their starts are stored, by
/// comparing and setting the values that hold them. Only when that is done do the attempts begin.
/// If another process has changed a value, the present one is read, and tasks that it leaves no
/// room for are released. If the process ends in between, starts were counted that never were.
extension TaskQueue {
  /// How often the claims of one step may hand out nothing that may begin.
  private static let mostVainClaims = 100

  /// Claims tasks that may begin now, and notes when they were claimed or extended, by the queue's
  /// stopwatch.
  nonisolated func claim(
    _ request: ClaimRequest,
    within limiting: RateLimiting,
    since begin: inout Duration
  ) async throws -> Claim {
    for _ in 0..<Self.mostVainClaims {
      try await readLimits(limiting)
      let now = self.now.microseconds
      let (limited, usedUpLimits) = limiting.withLimits {
        ($0.within(request, at: now), $0.usedUpLimits(at: now))
      }
      tell(usedUpLimits, limiting)
      // Nothing may begin before the date for which the timer is set now.
      guard limited.limit > 0 else { return Claim(tasks: [], nextDate: nil) }
      begin = time.stopwatch()
      var claim = try await store.claim(limited)
      guard !claim.tasks.isEmpty else { return claim }
      let tasks = claim.tasks
      do {
        let replaced = try await replacedOccurrences(among: tasks)
        let others = replaced.isEmpty ? tasks : tasks.filter { !replaced.contains($0.record.id) }
        claim.tasks = others.isEmpty ? [] : try await admit(others, limiting, since: &begin)
        claim.tasks += tasks.filter { replaced.contains($0.record.id) }
      } catch {
        fail(error, to: "count the starts of tasks", losing: true)
        // They are released when the run ends.
        machine.withLock { $0.hold(tasks) }
        throw error
      }
      if !claim.tasks.isEmpty { return claim }
      if machine.withLock({ $0.isStopping || $0.isPaused }) || Task.isCancelled { break }
    }
    // There may be tasks behind those that were put off.
    lookForWork()
    return Claim(tasks: [], nextDate: nil)
  }

  /// Returns the occurrences whose place later ones take: no attempt is made, so no start counts.
  private nonisolated func replacedOccurrences(
    among tasks: [ClaimedTask]
  ) async throws -> Set<TaskID> {
    var replaced: Set<TaskID> = []
    for task in tasks where task.record.id.isOccurrence {
      if try await isReplaced(task.record, now: now) { replaced.insert(task.record.id) }
    }
    return replaced
  }

  /// Reads what other calls of this queue, or another queue before it, have stored.
  private nonisolated func readLimits(_ limiting: RateLimiting) async throws {
    for name in limiting.withLimits({ $0.missingValues }) {
      try await looking { try await readLimit(name, limiting) }
    }
  }

  private nonisolated func readLimit(_ name: String, _ limiting: RateLimiting) async throws {
    let bytes = try await store.value(named: name)
    let now = self.now.microseconds
    guard limiting.withLimits({ $0.read(name, bytes, at: now) }) else { return }
    try await setValue(named: name, .relaxed) { bytes in
      limiting.withLimits { $0.mend(name, bytes, at: now) }
    }
  }

  /// Stores the starts of the tasks that may begin, and gives the others back.
  ///
  /// It notes when it has extended the claims.
  ///
  /// - Returns: The tasks that may begin.
  private nonisolated func admit(
    _ tasks: [ClaimedTask],
    _ limiting: RateLimiting,
    since begin: inout Duration
  ) async throws -> [ClaimedTask] {
    let records = tasks.map(\.record)
    var retries = 0
    var denied: RateLimits.Denials = [:]
    while true {
      let now = self.now.microseconds
      switch limiting.withLimits({ [denied] in $0.admit(records, at: now, denied: denied) }) {
      case .missing(let names):
        for name in names.sorted() { try await readLimit(name, limiting) }
      case .decided(let admission):
        // While the store was gone, nothing has extended these claims.
        let time = time.stopwatch()
        let isLate = leaseDuration.map { time - begin >= $0 / 3 } ?? false
        do {
          if let begun = try await store(
            admission,
            decidedAt: now,
            of: tasks,
            extending: isLate,
            limiting
          ) {
            // Those that were released, and others behind them, begin when there is room.
            tell(limiting.withLimits { $0.usedUpLimits(at: now) }, limiting)
            if isLate { begin = time }
            return begun
          }
        } catch {
          // All of it may be stored. If so, the starts count, although the tasks have not begun,
          // and those that were denied are not claimed any more: they must not begin.
          denied = admission.denials
          try await waitToRepeat(after: error, &retries)
        }
        limiting.withLimits { $0.forget(admission.writes.map(\.valueName)) }
      }
    }
  }

  /// Stores what was decided.
  ///
  /// If it extends the claims of the tasks that may begin, those whose claims have run out don't.
  ///
  /// - Returns: The tasks that begin; `nil` if nothing is stored, because another process has
  ///   changed a value.
  private nonisolated func store(
    _ admission: RateLimits.Admission,
    decidedAt now: Int64,
    of tasks: [ClaimedTask],
    extending isLate: Bool,
    _ limiting: RateLimiting
  ) async throws -> [ClaimedTask]? {
    var changes = admission.writes.map {
      TaskChange.setValue(named: $0.valueName, from: $0.old, to: $0.new)
    }
    changes += admission.released.map { .release(tasks[$0].lease) }
    changes += admission.postponed.map { index, date in
      .reschedule(
        .claimed(tasks[index].lease),
        availableDate: Date(microseconds: date),
        countedFrom: Date(microseconds: now)
      )
    }
    let admitted = admission.admitted.map { tasks[$0] }
    if isLate, let leaseDuration {
      changes += admitted.map { .extend($0.lease, for: leaseDuration) }
    }
    let outcomes = changes.isEmpty ? [] : try await persist(changes, .relaxed)
    if outcomes.contains(.valueDiffers) { return nil }
    let date = self.now.microseconds
    limiting.withLimits { $0.stored(admission, decidedAt: now, at: date) }
    for (index, date) in admission.postponed {
      let date = Date(microseconds: date)
      await observers.catchUp(with: tasks[index].record.id)
      observers.events.post(.rescheduled(tasks[index].record.id, to: date))
      becomesAvailable(at: date)
    }
    guard isLate else { return admitted }
    return zip(admitted, outcomes.suffix(admitted.count)).filter { $1 != .stale }.map(\.0)
  }

  /// Sets the timer for limits that are used up, and tells observers of them.
  ///
  /// They are those at the date for which it was decided what may begin: one that has room again
  /// since is looked at once more at once.
  private nonisolated func tell(_ usedUpLimits: [RateLimits.UsedUp], _ limiting: RateLimiting) {
    guard !usedUpLimits.isEmpty else { return }
    for limit in usedUpLimits { signals.timer.set(Date(microseconds: limit.until)) }
    let new = limiting.notTold(usedUpLimits)
    guard observers.events.isObserved, !new.isEmpty else { return }
    let scopes = limiting.withLimits { $0.scopes }
    for limit in new {
      observers.events.post(
        .rateLimited(
          scopes[limit.scope].description,
          until: Date(microseconds: limit.until)
        )
      )
    }
  }

  // MARK: Pauses

  /// Pauses the limits of a task whose attempt says that it has met one.
  nonisolated func pauseLimits(of record: TaskRecord, after end: AttemptEnd) async {
    guard let rateLimiting, case .threw(let error) = end,
      let snooze = error as? TaskSnoozed, snooze.scope == .rateLimit
    else { return }
    let now = self.now
    let until = now.storable(after: snooze.duration).microseconds
    do {
      for place in rateLimiting.withLimits({ $0.pausedPlaces(of: record) }) {
        try await setValue(named: place.valueName, .relaxed) { bytes in
          rateLimiting.withLimits {
            $0.pausing(place, bytes, from: now.microseconds, until: until)
          }
        }
        rateLimiting.withLimits { $0.forget(CollectionOfOne(place.valueName)) }
      }
    } catch {
      fail(error, to: "pause a rate limit")
    }
  }
}

extension WorkMachine {
  /// Takes claimed tasks that may not begin, because the run is about to end.
  mutating func hold(_ tasks: [ClaimedTask]) {
    concurrencyLimits.enter(tasks)
    ready = tasks.reversed() + ready
  }
}
