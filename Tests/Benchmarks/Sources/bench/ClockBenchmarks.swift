import Foundation
import SteadfastTesting

private let sleeps = 100_000
private let crowd = 1000
private let minutesOfAYear = 365 * 24 * 60

/// Sleeps one after another, each to its end.
let sleepBenchmarks = [
  Benchmark("Task.yield", iterations: sleeps) { count in
    for _ in 0..<count { await Task.yield() }
  },
  Benchmark("VirtualClock, advanced by a second task", against: "Task.yield", iterations: sleeps) {
    count in
    await withDiscardingTaskGroup { group in
      let clock = VirtualClock()
      group.addTask { await sleepRepeatedly(count, on: clock) }
      for _ in 0..<count {
        try? await clock.waitForSleepers(count: 1)
        clock.advance(by: .seconds(1))
      }
    }
  },
  Benchmark("withVirtualTime", against: "Task.yield", iterations: sleeps) { count in
    try? await withVirtualTime { await sleepRepeatedly(count, on: $0.clock) }
  },
  Benchmark("withVirtualTime, moved by hand", against: "Task.yield", iterations: sleeps) { count in
    try? await withVirtualTime(.manual) { time in
      await withDiscardingTaskGroup { group in
        group.addTask { await sleepRepeatedly(count, on: time.clock) }
        for _ in 0..<count { await time.advance(by: .seconds(1)) }
      }
    }
  },
]

/// A thousand concurrent sleeps, each in a child task.
///
/// A task group searches all its children to remove a child; with more tasks, this search would
/// dominate the measurement.
let crowdBenchmarks = [
  Benchmark("child tasks alone", iterations: sleeps) { count in
    for _ in 0..<count / crowd {
      await withDiscardingTaskGroup { group in
        for _ in 0..<crowd { group.addTask {} }
      }
    }
  },
  Benchmark("VirtualClock", against: "child tasks alone", iterations: sleeps) { count in
    for _ in 0..<count / crowd {
      let clock = VirtualClock()
      await withDiscardingTaskGroup { group in
        for index in 0..<crowd { group.addTask { await sleepInCrowd(index, on: clock) } }
        try? await clock.waitForSleepers(count: crowd)
        clock.advance(by: .seconds(crowd))
      }
    }
  },
  Benchmark("withVirtualTime", against: "child tasks alone", iterations: sleeps) { count in
    for _ in 0..<count / crowd {
      try? await withVirtualTime { time in
        await withDiscardingTaskGroup { group in
          for index in 0..<crowd { group.addTask { await sleepInCrowd(index, on: time.clock) } }
        }
      }
    }
  },
]

/// Advances a clock on which no task sleeps, to measure the cost of the call itself.
let advanceBenchmarks = [
  Benchmark("VirtualClock, nobody sleeps", iterations: sleeps) { count in
    let clock = VirtualClock()
    for _ in 0..<count { clock.advance(by: .seconds(1)) }
  },
  Benchmark("VirtualTime, nobody sleeps", iterations: sleeps) { count in
    try? await withVirtualTime(.manual) { time in
      for _ in 0..<count { await time.advance(by: .seconds(1)) }
    }
  },
]

/// A queue that waits a virtual year for its only task, and checks the date every minute.
let yearBenchmarks = [
  Benchmark("a minute of a queue that waits a year", iterations: minutesOfAYear) { count in
    try? await withVirtualTime { time in
      let queue = TaskQueue(persistence: InMemoryStore(), clock: time.clock)
      await queue.register(Reminder.self) { _, _ in }
      let date = time.clock.date + Double(count) * 60
      let task = try await queue.enqueue(Reminder(), availableDate: date)
      try await withThrowingTaskGroup { group in
        group.addTask { try await queue.run() }
        consume(try await task.outcome())
        await queue.shutDown()
        try await group.waitForAll()
      }
    }
  }
]

private struct Reminder: TaskPayload {}

/// Sleeps for a second, `count` times.
private func sleepRepeatedly(_ count: Int, on clock: VirtualClock) async {
  for _ in 0..<count { try? await clock.sleep(for: .seconds(1)) }
}

/// Sleeps until a second in which no other task of the crowd wakes.
///
/// The tasks of the crowd do not wake in the order in which they started.
private func sleepInCrowd(_ index: Int, on clock: VirtualClock) async {
  try? await clock.sleep(until: VirtualClock.Instant(offset: .seconds(1 + index * 7919 % crowd)))
}
