import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// An attempt of a scheduled task, with the values that its handler got.
struct Occasion: Equatable, CustomStringConvertible {
  var text: String
  /// The hours from the start of the test to the date of the occurrence.
  var date: Double
  /// The hours from the start of the test to the attempt.
  var now: Double
  var isLate = false
  var missed = 0

  var description: String { "\(text) of \(date) at \(now), late \(isLate), missed \(missed)" }
}

/// Makes queues for scheduled notes, and logs the attempts.
struct ScheduleBench: Sendable {
  let clock: VirtualClock
  let start: Date
  let log = Log<Occasion>()
  let events = Log<String>()

  init() throws {
    clock = try #require(VirtualTime.current).clock
    start = clock.date
  }

  func hoursFromStart(to date: Date) -> Double { date.timeIntervalSince(start) / 3_600 }

  func advance(hours: Double) async throws { try await clock.sleep(for: .seconds(hours * 3_600)) }

  /// Makes a queue whose notes succeed at once, unless their text starts with "fails", "retries" or
  /// "takes".
  func makeQueue(
    on store: some Persistence,
    workers: Int = 2,
    retention: Retention = .none,
    rateLimits: [RateLimit] = []
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: workers,
        backoff: .constant(.seconds(60)),
        rateLimits: rateLimits,
        succeededRetention: retention,
        abandonedRetention: .forever
      ),
      clock: clock
    )
    await registerHandler(in: queue)
    return queue
  }

  func registerHandler(in queue: TaskQueue) async {
    await queue.register(Note.self) { [clock, start, log] note, context in
      let occurrence = context.occurrence
      log.add(
        Occasion(
          text: note.text,
          date: (occurrence?.date ?? .distantPast).timeIntervalSince(start) / 3_600,
          now: clock.date.timeIntervalSince(start) / 3_600,
          isLate: occurrence?.isLate ?? false,
          missed: occurrence?.missedCount ?? -1
        )
      )
      let words = note.text.split(separator: " ")
      if words.first == "fails" { throw TaskAbandoned("no") }
      if words.first == "retries", context.retryCount == 0 { throw Refusal() }
      if words.first == "takes", let hours = Double(words[1]) {
        try await clock.sleep(for: .seconds(hours * 3_600))
      }
    }
  }

  /// Waits until a queue's events end, and returns texts for the events about schedules.
  func scheduleTexts(in events: TaskEvents) async -> [String] {
    var texts: [String] = []
    for await event in events {
      switch event {
      case .occurrencesMissed(let name, let count, let id):
        texts.append("\(name): \(count) \(id == nil ? "skipped" : "made up for")")
      case .scheduleParked(let name, _): texts.append("\(name): parked")
      default: break
      }
    }
    return texts
  }
}

extension ScheduleRule {
  /// Every hour at :00, in GMT.
  static var hours: ScheduleRule { get throws { try .hourly(minute: 0) } }
}
