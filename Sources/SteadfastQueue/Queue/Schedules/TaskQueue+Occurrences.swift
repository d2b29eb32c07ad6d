#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
