import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a queue of tasks in memory costs that can do next to nothing.
///
/// Tasks have an ID, dates and a number of retries, and are performed in order of arrival. Each one
/// is claimed, and its end counts only with its claim. That is the work which no queue gets around.
///
/// The rows of the package beside it show what the rest costs. The package looks each task up by
/// its name, priority, date, unique key, order key, tags, conditions and queue, whether they are
/// used or not. It asks a store through a protocol, tells observers, and keeps statistics. A worker
/// that ends a task and claims the next one takes the lock of the table twice and that of the queue
/// twice, where this one takes a single lock twice. With a producer on another core, each lock that
/// changes hands costs more than the work done within it.
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
