import Foundation
import SteadfastTesting

@testable import SteadfastQueue

/// The steps, checkpoints, sleeps and completions of the handlers.
extension ModelRun {
  /// Performs an act's steps, checkpoints and waits, and returns the error to throw.
  func remember(_ act: Act, _ context: TaskContext) async -> (any Error)? {
    do {
      for number in 0..<act.steps { try await step(number, context) }
      if act.savesCheckpoints { try await save(context) }
      if let seconds = act.nap { try await nap(seconds, context) }
      if let reply = act.reply { try await wait(for: reply, context) }
      return nil
    } catch {
      return error
    }
  }

  private func step(_ number: Int, _ context: TaskContext) async throws {
    let (id, name) = (context.id, "step \(number)")
    let stored = MemoryName.step(name)
    let known = ledger.update { $0.remembered(by: id, name: stored) }
    let value = try await context.step(name) { _ in
      ledger.update { ledger in
        ledger.require(known == nil, "\(ledger.label(id)) performs '\(name)' again")
        ledger.lastNumber += 1
        return ledger.lastNumber
      }
    }
    let bytes = try MemoryCoding.encode(value)
    ledger.update { ledger in
      let now = ledger.remembered(by: id, name: stored)
      ledger.require(
        bytes == now,
        "\(ledger.label(id)): '\(name)' is \(value), but not in the store"
      )
      ledger.require(known ?? bytes == bytes, "the value of '\(name)' has changed: \(value)")
    }
  }

  private func save(_ context: TaskContext) async throws {
    let id = context.id
    let found = try await context.checkpoint(Int.self)
    let (last, next) = ledger.update { ledger in
      ledger.lastNumber += 2
      return (ledger.entries[id]?.checkpoint, ledger.lastNumber)
    }
    // If the store fails, the last checkpoint may not be stored.
    if fault == nil, found != last {
      recordViolation(
        "the checkpoint of a task is \(found.debug), but the task saved \(last.debug)"
      )
    }
    for value in [next - 1, next] {
      ledger.update { $0.entries[id]?.checkpoint = value }
      try await context.save(value)
    }
  }

  private func nap(_ seconds: Int, _ context: TaskContext) async throws {
    let (id, name, before) = (context.id, MemoryName.sleep("nap"), time.clock.date)
    let known = ledger.update { $0.remembered(by: id, name: name) }
    do {
      try await context.sleep("nap", for: .seconds(seconds))
      let end = try ledger.update { $0.remembered(by: id, name: name) }.map(Self.date)
      if let end, end > max(before, time.clock.date) + 1e-3 {
        recordViolation("a sleep ends early")
      }
    } catch let error as TaskSuspended {
      let end = try Self.date(ledger.update { $0.remembered(by: id, name: name) } ?? [])
      if known == nil { check(end, isAfter: seconds, since: before) }
      ledger.update { $0.entries[id]?.attempt?.wakeDate = end }
      throw error
    }
  }

  private func wait(for reply: Act.Reply, _ context: TaskContext) async throws {
    let (id, name, before) = (context.id, MemoryName.completion("reply"), time.clock.date)
    var limit: Int?
    if case .within(let seconds) = reply { limit = seconds }
    let known = ledger.update { $0.remembered(by: id, name: name) }
    do {
      let value = try await context.completion(
        "reply",
        of: Int.self,
        within: limit.map { .seconds($0) }
      ) { token in
        ledger.update { $0.entries[id]?.token = token }
      }
      try checkReply(to: id, MemoryCoding.encode(CompletionOutcome.Value(value: value)))
    } catch let error as CompletionFailed {
      if !error.hasTimedOut { recordViolation("a wait has failed: \(error)") }
      try checkReply(to: id, MemoryCoding.encode(CompletionOutcome.Failure(timedOut: true)))
      throw error
    } catch let error as TaskSuspended {
      let bytes = ledger.update { $0.remembered(by: id, name: name) } ?? []
      let open = try MemoryCoding.decode(OpenCompletion.self, from: bytes)
      let deadline = open.deadline?.date
      if known == nil {
        if let limit, let deadline { check(deadline, isAfter: limit, since: before) }
        if (limit == nil) != (deadline == nil) {
          recordViolation("a wait ends at \(deadline.debug)")
        }
      }
      ledger.update { $0.entries[id]?.attempt?.wakeDate = deadline ?? .distantFuture }
      throw error
    }
  }

  private func checkReply(to id: TaskID, _ found: [UInt8]) {
    ledger.update { ledger in
      let token = ledger.entries[id]?.token
      let reply = token.flatMap { ledger.replies[MemoryName.outcome($0)] }
      ledger.require(found == reply, "\(ledger.label(id)) gets a reply other than the first one")
    }
  }

  /// Checks that a wait has ended at the right date, even if the system's date was changed.
  private func check(_ date: Date, isAfter seconds: Int, since begin: Date) {
    let now = time.clock.date
    let start = date - Double(seconds)
    if start < min(begin, now) - 1e-3 || start > max(begin, now) + 1e-3 {
      recordViolation("a wait of \(seconds) s from \(begin) ends at \(date)")
    }
  }

  private static func date(_ bytes: [UInt8]) throws -> Date {
    try MemoryCoding.decode(WaitEnd.self, from: bytes).date
  }

  // MARK: Completions

  func complete(_ index: Int) {
    if let id = ledger.update({ $0.record(index) }) { complete(id) }
  }

  /// Completes the task's wait through the main queue, if the task has handed out a token.
  func complete(_ id: TaskID) {
    let (token, number) = ledger.update { ledger in
      ledger.lastNumber += 1
      // The queue that completes the wait reports the event, even if the task is another queue's.
      if ledger.entries[id]?.queue != "" { ledger.entries[id]?.wasChangedAlong = true }
      return (ledger.entries[id]?.token, ledger.lastNumber)
    }
    guard let token else { return }
    let queue = queue
    start {
      do {
        let bytes = try MemoryCoding.encode(CompletionOutcome.Value(value: number))
        let counts = try await queue.complete(token, with: number)
        self.ledger.update { ledger in
          let isFirst = ledger.replies[MemoryName.outcome(token)] == bytes
          ledger.require(counts == isFirst, "complete() returned \(counts) for \(ledger.label(id))")
        }
      } catch {
        self.checkError(of: "complete", error)
      }
    }
  }

  func checkMemories() async throws {
    for entry in ledger.update({ $0.table.entries }) where !entry.memory.isEmpty {
      let memory = try await base.memory(of: entry.record.id)
      var found: [ExactText: [UInt8]] = [:]
      for name in memory.names { found[ExactText(name)] = memory[name] }
      if found != entry.memory {
        recordViolation("a task's memory is \(found), not \(entry.memory)")
      }
    }
  }
}

extension ModelLedger {
  /// The bytes under a name in a task's memory.
  func remembered(by id: TaskID, name: String) -> [UInt8]? {
    table.memory(of: id)[ExactText(name)]
  }

  func checkMemory(of lease: Lease, _ name: String) {
    let attempt = attempt(lease)
    require(attempt != nil, "\(label(lease.id)) remembers '\(name)', but is not performed")
    // The last checkpoint may be stored after the handler has ended.
    let isLate = attempt?.end != nil && name != MemoryName.checkpoint
    require(!isLate, "\(label(lease.id)) remembers '\(name)' after its attempt")
  }

  mutating func recordSuspension(of lease: Lease, until date: Date) {
    let id = lease.id
    requireEnd(of: lease, "is suspended") { if case .suspended = $0 { true } else { false } }
    let expiry = entries[id]?.claimed?.expiryDate ?? .distantFuture
    let expected = attempt(lease)?.wakeDate.map { min($0, expiry) }
    require(
      expected.map { abs($0.timeIntervalSince(date)) < 1e-3 } ?? false,
      "\(label(id)) is suspended until \(date), not \(expected.debug)"
    )
    entries[id]?.expectedEvents.append("suspended")
    release(id)
  }

  mutating func recordCompletion(of id: TaskID, _ name: String, _ value: [UInt8]) {
    require(replies[name] == nil, "\(label(id)) is completed twice")
    require(entries[id]?.hasEnded == false, "\(label(id)) is completed after its end")
    replies[name] = value
    expect("completion arrived", of: id)
  }
}

extension Optional {
  fileprivate var debug: String { map { "\($0)" } ?? "nil" }
}
