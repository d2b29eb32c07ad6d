import SteadfastQueue
import Synchronization

/// The facts about each task of a round, which all parts of the round record here.
final class Ledger: Sendable {
  /// What happened to one task.
  struct Entry {
    var id: TaskID?
    /// Whether the task expired before it could be added.
    var isRefused = false
    var attempts = 0
    var returns = 0
    /// Whether a call has tried to cancel the task.
    var mayBeCancelled = false
    var mayBeRemoved = false
    var succeeded = 0
    var cancelled = 0
    var abandoned = 0
    var restarted = 0
    /// The outcomes that waiting callers got.
    var outcomes: [TaskOutcome] = []
  }

  fileprivate struct State {
    var entries: [Entry] = []
    var numbers: [TaskID: Int] = [:]
    var violations: [String] = []
    var controls = 0
    /// The number of running calls that can cancel any task.
    var cancellations = 0
  }

  private let state = Mutex(State())

  /// Records that a task is about to be added, and returns its number.
  func recordSubmission() -> Int {
    state.withLock { state in
      state.entries.append(Entry(mayBeCancelled: state.cancellations > 0))
      return state.entries.count - 1
    }
  }

  /// Records that a task expired before it could be added.
  func recordRefusal(of number: Int) { state.withLock { $0.entries[number].isRefused = true } }

  /// Records a task's ID.
  func recordID(_ id: TaskID, of number: Int) { state.withLock { $0.recordID(id, of: number) } }

  /// Records the start of an attempt.
  func recordStart(of number: Int, id: TaskID) {
    recordID(id, of: number)
    state.withLock { state in
      state.entries[number].attempts += 1
      if state.entries[number].returns > 0 {
        state.violations.append("task \(number) is performed although its handler has returned")
      }
    }
  }

  /// Records that a handler is about to return, so that its task succeeds.
  func recordReturn(of number: Int) { state.withLock { $0.entries[number].returns += 1 } }

  /// Records that a call is about to try to cancel a task.
  func recordCancelRequest(for number: Int) {
    state.withLock { $0.entries[number].mayBeCancelled = true }
  }

  /// Records that a call is about to try to remove a task.
  func recordRemoveRequest(for number: Int) {
    state.withLock { $0.entries[number].mayBeRemoved = true }
  }

  /// Makes a call that can cancel any task, including the tasks that are added during the call.
  func makeCallThatCancelsAny(_ call: () async throws -> Void) async throws {
    state.withLock { state in
      state.cancellations += 1
      for index in state.entries.indices { state.entries[index].mayBeCancelled = true }
    }
    defer { state.withLock { $0.cancellations -= 1 } }
    try await call()
  }

  /// Counts a call of a control.
  func countControl() { state.withLock { $0.controls += 1 } }

  /// Returns one of the added tasks, chosen by a random number.
  func randomTask(_ random: UInt64) -> (number: Int, id: TaskID)? {
    state.withLock { state in
      guard !state.entries.isEmpty else { return nil }
      let number = Int(random % UInt64(state.entries.count))
      return state.entries[number].id.map { (number, $0) }
    }
  }

  /// Records a broken promise.
  func recordViolation(_ text: String) { state.withLock { $0.violations.append(text) } }

  /// Records the outcome of a task that a waiting caller got.
  func recordOutcome(_ outcome: TaskOutcome, of number: Int) {
    state.withLock { $0.entries[number].outcomes.append(outcome) }
  }

  /// Records an event that an observer got.
  func recordEvent(_ event: TaskEvent) {
    state.withLock { state in
      switch event {
      case .enqueued(let record):
        // Another call can end a task before the caller that added it knows its ID.
        if let chore = try? record.payload(as: Chore.self) {
          state.recordID(record.id, of: chore.number)
        }
      case .succeeded(let record, _): state.editEntry(of: record.id) { $0.succeeded += 1 }
      case .abandoned(let record, _, _): state.editEntry(of: record.id) { $0.abandoned += 1 }
      case .cancelled(let id): state.editEntry(of: id) { $0.cancelled += 1 }
      case .retried(let id): state.editEntry(of: id) { $0.restarted += 1 }
      case .missed(let count): state.violations.append("an observer missed \(count) events")
      case .unhandled(let record, let reason):
        state.violations.append("\(record.id) is not performed: \(reason)")
      default: break
      }
    }
  }

  /// Checks a finished round, in which only these dead letters remain, and returns the counts of
  /// the round.
  ///
  /// - Throws: A ``Violation`` that lists all inconsistencies.
  func checkRound(deadLetters: Set<TaskID>, queues: Int) throws -> Tally {
    try state.withLock { state in
      for (number, entry) in state.entries.enumerated() {
        let isDead = entry.id.map(deadLetters.contains) ?? false
        if let problem = entry.inconsistency(isDeadLetter: isDead) {
          state.violations.append("task \(number): \(problem): \(entry)")
        }
      }
      guard state.violations.isEmpty else {
        throw Violation(state.violations.prefix(20).joined(separator: "\n"))
      }
      return Tally(
        tasks: state.entries.count,
        attempts: state.entries.reduce(0) { $0 + $1.attempts },
        controls: state.controls,
        queues: queues
      )
    }
  }
}

extension Ledger.State {
  fileprivate mutating func recordID(_ id: TaskID, of number: Int) {
    entries[number].id = id
    numbers[id] = number
  }

  fileprivate mutating func editEntry(of id: TaskID, _ change: (inout Ledger.Entry) -> Void) {
    guard let number = numbers[id] else { return }
    change(&entries[number])
  }
}

extension Ledger.Entry {
  /// Returns an inconsistency in the facts of the entry; `nil` if they are consistent.
  fileprivate func inconsistency(isDeadLetter: Bool) -> String? {
    if isRefused { return id == nil ? nil : "it was rejected, but exists" }
    if id == nil { return "it was added, but no part of the round knows its ID" }
    if returns > 1 { return "its handler has returned more than once" }
    if succeeded != returns {
      return "its handler returned \(returns) times, but it succeeded \(succeeded) times"
    }
    if succeeded + cancelled > 1 { return "it has ended more than once" }
    if cancelled > 0, !mayBeCancelled { return "it was cancelled without a request" }
    if succeeded + cancelled == 0, !isDeadLetter, !mayBeRemoved {
      return "it has neither ended nor become a dead letter"
    }
    if isDeadLetter, succeeded + cancelled > 0 { return "it is a dead letter, but has ended" }
    if isDeadLetter, abandoned == 0 { return "it is a dead letter, but no observer was notified" }
    for outcome in outcomes {
      switch outcome {
      case .succeeded where succeeded == 0: return "a caller got a success that did not happen"
      case .abandoned where abandoned == 0: return "a caller got an abandonment that did not happen"
      case .cancelled where cancelled == 0 && !mayBeRemoved:
        return "a caller got a cancellation that did not happen"
      default: break
      }
    }
    return nil
  }
}
