import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A minimal queue of tasks in memory, for the cost of the package's features.
///
/// Tasks have an ID, dates and a number of retries, and are performed in order of arrival. Each
/// task is claimed, and can end only with its claim. No queue can avoid this work.
///
/// The package's rows beside it show the cost of the rest. The package indexes each task by its
/// name, priority, date, unique key, order key, tags, conditions and queue, whether they are used
/// or not. It calls a store through a protocol, notifies observers, and updates statistics. When a
/// worker ends a task and claims the next one, it acquires the table's lock twice and the queue's
/// lock twice; this queue acquires a single lock twice. With a producer on another core, passing a
/// lock between cores costs more than the work done within it.
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
        for _ in 0..<workers { group.addTask { await self.work(perform) } }
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

  private func work(_ perform: @Sendable (Increment) async throws -> Void) async {
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
