#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

extension TaskEvent {
  /// The kind of the event and the text of its note.
  fileprivate var summary: String {
    func noteText(of record: TaskRecord) -> String {
      record.payload.value(as: Note.self)?.text ?? "?"
    }
    return switch self {
    case .enqueued(let record): "enqueued \(noteText(of: record))"
    case .started(let record): "started \(noteText(of: record))"
    case .failed(let record, let reason, _, _): "failed \(noteText(of: record)): \(reason)"
    case .snoozed(let record, _): "snoozed \(noteText(of: record))"
    case .suspended(let record, _): "suspended \(noteText(of: record))"
    case .completionArrived: "completion arrived"
    case .succeeded(let record, _): "succeeded \(noteText(of: record))"
    case .abandoned(let record, let reason, _): "abandoned \(noteText(of: record)): \(reason)"
    case .progressed(let record, let fraction): "progressed \(noteText(of: record)): \(fraction)"
    case .cancelled: "cancelled"
    case .cancelledByDependency: "cancelled along"
    case .batchProgressed(_, let batch): "batch: \(batch)"
    case .paused: "paused"
    case .resumed: "resumed"
    case .retried: "retried"
    case .rescheduled: "rescheduled"
    case .updated: "updated"
    case .superseded(let record, _): "superseded \(noteText(of: record))"
    case .released(let record): "released \(noteText(of: record))"
    case .unhandled(let record, _): "unhandled \(noteText(of: record))"
    case .occurrencesMissed(let schedule, let count, _): "missed \(count) of \(schedule)"
    case .scheduleParked(let schedule, _): "parked \(schedule)"
    case .rateLimited(let limit, _): "rate limited: \(limit)"
    case .storeUnavailable(let reason, _): "store unavailable: \(reason)"
    case .missed(let count): "missed \(count)"
    }
  }
}

@Suite struct EventTests {
  private let clock = VirtualClock()

  @Test func `every observer gets all events after it subscribes`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { note, context in
      if note.text == "b" { throw context.retryCount == 0 ? Refusal() : Refusal("again") }
    }
    let first = queue.events
    try await queue.enqueue(Note("a"))
    let second = queue.events
    try await queue.enqueue(Note("b"), maxRetries: 1)
    try await queue.runAvailable()
    clock.advance(by: .seconds(60))
    try await queue.runAvailable()

    let later = [
      "enqueued b", "started a", "succeeded a", "started b", "failed b: refused", "started b",
      "abandoned b: again",
    ]
    #expect(await summaries(of: first, count: 8) == ["enqueued a"] + later)
    #expect(await summaries(of: second, count: 7) == later)
  }

  @Test func `the event of an attempt's end includes the waiting and running times`()
    async throws
  {
    let clock = clock
    let queue = TaskQueue(clock: clock)
    let events = queue.events
    await queue.register(Note.self) { _, context in
      clock.advance(by: .seconds(2))
      switch context.retryCount {
      case 0: throw Refusal()
      case 1: return
      default: throw TaskAbandoned("never reached")
      }
    }
    try await queue.enqueue(Note("a"), usesBackoff: false)
    clock.advance(by: .seconds(7))
    try await queue.runAvailable()
    clock.advance(by: .seconds(1))
    try await queue.runAvailable()
    try await queue.enqueue(
      Note("b"),
      maxRetries: 0,
      options: TaskOptions(expiryDate: clock.date.advanced(by: 5))
    )
    clock.advance(by: .seconds(5))
    try await queue.runAvailable()
    try await queue.enqueue(Note("c"), maxRetries: 0)
    try await queue.runAvailable()
    var timings: [TaskTiming?] = []
    for await event in events {
      switch event {
      case .failed(_, _, _, let timing): timings.append(timing)
      case .succeeded(_, let timing): timings.append(timing)
      case .abandoned(_, _, let timing): timings.append(timing)
      default: continue
      }
      if timings.count == 4 { break }
    }
    let expected: [TaskTiming?] = [
      TaskTiming(waited: .seconds(7), ran: .seconds(2)),
      TaskTiming(waited: .seconds(1), ran: .seconds(2)),
      nil,
      TaskTiming(waited: .zero, ran: .seconds(2)),
    ]
    #expect(timings == expected)
    let statistics = try await queue.statistics
    #expect(statistics.runTime.total == .seconds(6))
    #expect(statistics.waitTime.longest == .seconds(7))
  }

  private func summaries(of events: TaskEvents, count: Int) async -> [String] {
    var summaries: [String] = []
    for await event in events {
      summaries.append(event.summary)
      if summaries.count == count { break }
    }
    return summaries
  }

  @Test func `an observer that falls behind is notified how many events it missed`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(eventBufferSize: 3),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in }
    let events = queue.events
    for number in 1...5 { try await queue.enqueue(Note("\(number)")) }
    #expect(
      await summaries(of: events, count: 4)
        == ["missed 2", "enqueued 3", "enqueued 4", "enqueued 5"]
    )
  }

  @Test func `each event has the ID of its task`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { _, context in
      if context.retryCount == 0 { throw TaskSnoozed(for: .seconds(1)) }
    }
    let events = queue.events
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    try await queue.pause(task.id)
    try await queue.resume(task.id)
    try await queue.update(task.id, priority: .high)
    try await queue.performNow(task.id)
    try await queue.retry(task.id)
    try await task.cancel()
    var seen: [String] = []
    for await event in events {
      #expect(event.taskID == task.id)
      seen.append(event.summary)
      if event.summary == "cancelled" { break }
    }
    #expect(
      seen == [
        "enqueued a", "started a", "snoozed a", "paused", "resumed", "updated", "rescheduled",
        "retried", "cancelled",
      ]
    )
    #expect(TaskEvent.missed(count: 2).taskID == nil)
  }

  @Test func `an enqueued task returns its stored record`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal() }
    let task = try await queue.enqueue(Note("a"), maxRetries: 1)
    #expect(try await task.record()?.state == .waiting)
    try await queue.runAvailable()
    let record = try #require(try await task.record())
    #expect(record.retryCount == 1 && record.failures.map(\.reason) == ["refused"])
    try await queue.remove(task.id)
    #expect(try await task.record() == nil)
  }

  @Test func `the event sequence ends with the queue`() async throws {
    var queue: TaskQueue? = TaskQueue(clock: clock)
    let events = try #require(queue?.events)
    queue = nil
    for await event in events { Issue.record("\(event)") }
  }

  @Test func `no prepared events remain after the last observer has left`() async throws {
    let queue = TaskQueue(clock: clock)
    let record = TaskRecord.make(1)
    var events: TaskEvents? = queue.events
    queue.core.observers.events.prepareEnqueuedEvent(of: record)
    #expect(queue.core.observers.events.announcementCount == 1)
    withExtendedLifetime(events) {}
    events = nil
    queue.core.observers.events.post(.started(record))
    queue.core.observers.events.postEnqueuedEvent(of: record.id)
    #expect(queue.core.observers.events.announcementCount == 0)
  }

  @Test func `waiting for events can be cancelled`() async {
    let queue = TaskQueue(clock: clock)
    let events = queue.events
    await withTaskGroup { group in
      group.addTask { for await event in events { Issue.record("\(event)") } }
      group.cancelAll()
    }
  }

  @Test func `prepared events remain for an observer that arrives as the last observer leaves`() {
    let queue = TaskQueue(clock: clock)
    let record = TaskRecord.make(1)
    let events = queue.events
    queue.core.observers.events.prepareEnqueuedEvent(of: record)
    // Another caller found no observers just before this observer arrived.
    queue.core.observers.events.endObservation()
    #expect(queue.core.observers.events.isObserved)
    #expect(queue.core.observers.events.announcementCount == 1)
    withExtendedLifetime(events) {}
  }

  @Test(.virtualTime)
  func `an event posted just before its reader is cancelled is delivered to another reader`()
    async throws
  {
    let time = try #require(VirtualTime.current)
    let hub = EventHub(capacity: 8)
    let events = hub.subscribe()
    let read = Log<String>()
    await withTaskGroup { group in
      for name in ["first", "second"] {
        group.addTask {
          try? await withThrowingTaskGroup { readers in
            readers.addTask { for await _ in events { read.add(name) } }
            try await time.clock.sleep(for: .seconds(name == "second" ? 10 : 100))
            // The second reader arrived last, and is woken for this event.
            if name == "second" { hub.post(.missed(count: 1)) }
            readers.cancelAll()
          }
        }
        try? await time.clock.sleep(for: .seconds(1))
      }
      try? await time.clock.sleep(for: .seconds(50))
      #expect(read.entries == ["first"])
    }
  }

  @Test func `the event of a task's start never precedes the event of its enqueueing`()
    async throws
  {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4, eventBufferSize: 10_000)
    )
    await queue.register(Note.self) { _, _ in }
    let events = queue.events
    let count = 400
    try await withRunning(queue) {
      await withThrowingTaskGroup { group in
        for producer in 0..<4 {
          group.addTask {
            for number in 0..<count / 4 {
              try await queue.enqueue(Note("\(producer)/\(number)"))
            }
          }
        }
      }
      var enqueued: Set<TaskID> = []
      var succeeded = 0
      for await event in events {
        switch event {
        case .enqueued(let record): enqueued.insert(record.id)
        case .started(let record):
          let wasEnqueued = enqueued.contains(record.id)
          #expect(wasEnqueued)
        case .succeeded: succeeded += 1
        case .missed(let count): Issue.record("missed \(count)")
        default: Issue.record("\(event)")
        }
        if succeeded == count { break }
      }
    }
  }
}
