import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A minimal queue of tasks in memory, which shows by comparison what the package's features cost.
///
/// Tasks have an ID, dates and a number of retries, and are performed in order of arrival. Each
/// task is claimed, and can end only with the token of that claim. No queue can avoid this work.
///
/// The difference from the package's rows is the cost of all other work. The package indexes each
/// task by name, priority, date, unique key, order key, tags, conditions and queue, even if the
/// task does not use them all. The package calls a store through a protocol, notifies observers,
/// and updates statistics. When a worker ends a task and claims the next task, the package acquires
/// the lock of the table twice and the lock of the queue twice, but this queue acquires a single
/// lock twice. With a producer on another core, passing a lock between cores costs more than the
/// work that is done while the lock is held.
final class PlainQueue: Subject {
  private struct Entry {
    let payload: Increment
    let createdDate: Date
    let availableDate: Date
    var retryCount = 0
    var claim: UInt64?
  }

  private struct State {
    var tasks: [UInt64: Entry] = [:]
    var line: [UInt64] = []
    var head = 0
    var lastID: UInt64 = 0
    var lastClaim: UInt64 = 0
    var idle: [CheckedContinuation<Void, Never>] = []
    var hasEnded = false

    mutating func insert(_ payload: Increment, at date: Date) -> CheckedContinuation<Void, Never>? {
      lastID += 1
      tasks[lastID] = Entry(payload: payload, createdDate: date, availableDate: date)
      line.append(lastID)
      return idle.popLast()
    }

    mutating func claim(at date: Date) -> (id: UInt64, claim: UInt64, payload: Increment)? {
      guard head < line.count else { return nil }
      let id = line[head]
      guard let entry = tasks[id], entry.availableDate <= date else { return nil }
      head += 1
      if head > 1024, head * 2 > line.count {
        line.removeFirst(head)
        head = 0
      }
      lastClaim += 1
      tasks[id]?.claim = lastClaim
      return (id, lastClaim, entry.payload)
    }

    mutating func end(_ id: UInt64, _ claim: UInt64, succeeded: Bool) {
      guard tasks[id]?.claim == claim else { return }
      if succeeded {
        tasks[id] = nil
      } else {
        tasks[id]?.claim = nil
        tasks[id]?.retryCount += 1
        line.append(id)
      }
    }
  }

  private let workers: Int
  private let state = Mutex(State())

  init(workers: Int) { self.workers = workers }

  func enqueue(_ task: Increment) {
    let date = Date()
    state.withLock { $0.insert(task, at: date) }?.resume()
  }

  func run(_ perform: @escaping @Sendable (Increment) async throws -> Void) async {
    await withTaskCancellationHandler {
      await withDiscardingTaskGroup { group in
        for _ in 0..<workers { group.addTask { await self.runWorker(perform) } }
      }
    } onCancel: {
      let idle = state.withLock { state in
        state.hasEnded = true
        defer { state.idle = [] }
        return state.idle
      }
      for continuation in idle { continuation.resume() }
    }
  }

  private func runWorker(_ perform: @Sendable (Increment) async throws -> Void) async {
    while !state.withLock(\.hasEnded) {
      let date = Date()
      guard let task = state.withLock({ $0.claim(at: date) }) else {
        await withCheckedContinuation { continuation in
          let isNeeded = state.withLock { state in
            if state.hasEnded || state.head < state.line.count { return false }
            state.idle.append(continuation)
            return true
          }
          if !isNeeded { continuation.resume() }
        }
        continue
      }
      let succeeded = (try? await perform(task.payload)) != nil
      state.withLock { $0.end(task.id, task.claim, succeeded: succeeded) }
    }
  }
}
