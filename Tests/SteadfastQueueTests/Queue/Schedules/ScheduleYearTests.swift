import Foundation
import SteadfastRetry
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Simulates a year in which two processes on one store end at random moments.
@Suite(.virtualTime) struct ScheduleYearTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  /// Counts the performed and missed dates of the schedules.
  private final class Account: Sendable {
    struct State: Sendable {
      var performed: [String: [Date]] = [:]
      var missed: [String: Int] = [:]
      /// The schedules whose occurrences are being performed.
      var running: Set<String> = []
      var overlaps = 0
    }

    let state = Mutex(State())

    func recordPerformed(_ date: Date, of name: String) {
      state.withLock { $0.performed[name, default: []].append(date) }
    }

    func recordStart(of name: String) {
      state.withLock { if !$0.running.insert(name).inserted { $0.overlaps += 1 } }
    }

    func recordEnd(of name: String) { state.withLock { _ = $0.running.remove(name) } }

    func recordMissed(count: Int, of name: String) {
      state.withLock { $0.missed[name, default: 0] += count }
    }
  }

  private func schedules() throws -> [(String, ScheduleRule, MissedOccurrences)] {
    let (berlin, newYork) = (try zone("Europe/Berlin"), try zone("America/New_York"))
    return try [
      ("nightly", .daily(at: .time(2, 30), in: berlin), .once()),
      (
        "weekly", .weekly(on: [.monday, .thursday], at: .time(6, 0), in: newYork), .each(atMost: 3)
      ),
      ("often", .every(.seconds(9 * 3_600)), .once(within: .seconds(7_200))),
      ("seldom", .cron("15 3 1,15 * *", in: berlin), .skip),
      ("shifts", .cron("20 */8 * * *", in: berlin), .each(atMost: 2)),
    ]
  }

  /// Simulates a process that repeatedly runs a queue, ends, and starts again some time later.
  private func simulateProcess(
    on store: SharedStore,
    clock: SkewedClock<VirtualClock>,
    account: Account,
    until end: Date,
    random: inout SplitMix64
  ) async throws {
    while bench.clock.date < end {
      let queue = TaskQueue(
        persistence: store.process(),
        configuration: TaskQueueConfiguration(
          maxConcurrentTasks: 4,
          backoff: .constant(.seconds(300))
        ),
        clock: clock
      )
      await queue.register(Note.self) { [clock = bench.clock] note, context in
        let date = try #require(context.occurrence?.date)
        account.recordStart(of: note.text)
        defer { account.recordEnd(of: note.text) }
        // One attempt in eight fails once, and some take ten hours.
        if context.retryCount == 0, Int(date.timeIntervalSince1970 / 60) % 8 == 3 {
          throw Refusal()
        }
        let seconds = Int(date.timeIntervalSince1970 / 3_600) % 13 * 3_000
        try await clock.sleep(for: .seconds(seconds))
        account.recordPerformed(date, of: note.text)
      }
      for (name, rule, missed) in try schedules() {
        try await queue.schedule(name, rule, Note(name), missed: missed)
      }
      let events = queue.events
      let running = Double.random(in: 600...(3 * 86_400), using: &random)
      try await withThrowingTaskGroup { group in
        group.addTask {
          for await event in events {
            if case .occurrencesMissed(let name, let count, _) = event {
              account.recordMissed(count: count, of: name)
            }
          }
        }
        group.addTask { try await queue.run() }
        try await bench.clock.sleep(for: .seconds(running))
        await queue.shutDown(within: .zero)
        try await group.waitForAll()
      }
      let resting = Double.random(in: 1...(5 * 86_400), using: &random)
      try await bench.clock.sleep(for: .seconds(resting))
    }
  }

  @Test(arguments: 1...UInt64(max(1, Soak.runs(short: 1))))
  func `each date of a simulated year is either performed or reported as missed, exactly once`(
    seed: UInt64
  )
    async throws
  {
    let store = SharedStore(
      StoreSharing(leaseDuration: .seconds(3_600), pollInterval: .seconds(7_200))
    )
    let account = Account()
    let end = bench.start + 365 * 86_400
    try await withThrowingTaskGroup { group in
      for (index, skew) in [0.0, 60].enumerated() {
        group.addTask {
          var random = SplitMix64(seed: seed &* 2 &+ UInt64(index))
          try await simulateProcess(
            on: store,
            clock: SkewedClock(base: bench.clock, seconds: skew),
            account: account,
            until: end,
            random: &random
          )
        }
      }
      try await group.waitForAll()
    }
    let state = account.state.withLock { $0 }
    #expect(state.overlaps == 0)
    let queue = TaskQueue(persistence: store.process(), clock: bench.clock)
    for (name, rule, _) in try schedules() {
      let performed = state.performed[name, default: []]
      #expect(Set(performed).count == performed.count, "\(name) was performed twice")
      #expect(performed == performed.sorted())
      // All dates before the next occurrence.
      let next = try #require(try await queue.occurrences(of: name, count: 1).first)
      var all: [Date] = []
      var date = rule.next(after: bench.start)
      while let day = date, day < next {
        all.append(day)
        date = rule.next(after: day)
      }
      #expect(Set(performed).isSubset(of: all))
      let missed = state.missed[name, default: 0]
      // An occurrence that has begun, but was interrupted, waits for its next attempt.
      let begun = try await queue.tasks()
        .filter { try $0.payload(as: Note.self).text == name }
        .compactMap(\.id.occurrenceDate).filter(all.contains)
      #expect(performed.count + missed + begun.count == all.count, "\(name)")
      #expect(performed.count > 0, "\(name)")
    }
    #expect(state.missed.values.reduce(0, +) > 0)
  }
}
