@testable import SteadfastQueue

/// The operations of processes on a disk, and the results that their callers got.
struct History: Sendable {
  /// The changes that one call submitted for writing.
  struct Batch: Sendable {
    /// The number of the call.
    ///
    /// Calls are numbered in the order in which they were made.
    let call: Int?
    let entries: [JournalEntry]
  }

  /// What an acknowledged batch survives.
  enum Survival: Sendable {
    case endOfProcess
    /// Also power cuts, once the interval between flushes has passed.
    case laterPowerCuts
    case powerCuts
  }

  enum Event: Sendable {
    /// These batches are about to be written, before the last `before` batches, which were recorded
    /// earlier and aren't written yet.
    case submitted([Batch], before: Int)
    /// The call reported that its batch is stored.
    case acknowledged(call: Int, survives: Survival)
    /// The call reported that its batch is not stored, or that the outcome is unknown.
    case failed(call: Int, isUnknown: Bool)
    /// The store is idle, and serves tasks with this digest.
    case served(digest: UInt64)
    /// The interval between flushes has passed, so the store must have flushed the file.
    case intervalPassed
    /// The store was closed, so all of its changes are durable.
    case closed
    /// The file is about to be deleted.
    case destroying
    /// The file was deleted.
    case destroyed
    /// Another process opened a store, and serves tasks with this digest.
    case opened(digest: UInt64)
    /// The file couldn't be opened again.
    case gaveUp(reason: String)
  }

  var operations: [DiskOperation] = []
  /// The events, each with the number of disk operations before it.
  var events: [(moment: Int, event: Event)] = []
}

/// The states of the tasks that a recovery may find at a moment of a history.
struct Promises {
  /// The tasks after a number of batches.
  struct Stage {
    let table: TaskTable
    let digest: UInt64
    /// The number of the call that led to this stage, or `nil` for the initial stage.
    let call: Int?
    /// The journal entries that the call has written.
    var entries: [JournalEntry] = []
  }

  /// The stages, in the order of their batches.
  private(set) var stages: [Stage]
  /// The first stage that may be found after a power cut.
  private(set) var firstDurable = 0
  /// The first stage that may be found after a power cut once the interval between flushes has
  /// passed.
  private var firstDurableLater = 0
  /// The first stage that may be found after the end of the process.
  private var firstKept = 0

  init(_ table: TaskTable = TaskTable()) {
    stages = [Stage(table: table, digest: table.digest(), call: nil)]
  }

  /// The stages that may be found after a power cut, the latest last.
  var allowed: ArraySlice<Stage> { stages[firstDurable...] }

  mutating func apply(_ event: History.Event) throws(Finding) {
    switch event {
    case .submitted(let batches, let count):
      let later = stages.suffix(count)
      stages.removeLast(count)
      for batch in batches { submit(batch) }
      for stage in later { submit(History.Batch(call: stage.call, entries: stage.entries)) }
    case .acknowledged(let call, let survival):
      // A call that changed nothing has no stage.
      guard let stage = stages.lastIndex(where: { $0.call == call }) else { return }
      firstKept = max(firstKept, stage)
      if survival != .endOfProcess { firstDurableLater = max(firstDurableLater, stage) }
      if survival == .powerCuts { firstDurable = max(firstDurable, stage) }
    case .failed(let call, let isUnknown):
      guard !isUnknown, let stage = stages.firstIndex(where: { $0.call == call }) else { return }
      guard stage > firstKept else { throw Finding("a call failed before a stored one") }
      stages.removeSubrange(stage...)
    case .served(let digest):
      guard stages.last?.digest == digest else {
        throw Finding("a store serves other tasks than its file contains")
      }
    case .intervalPassed:
      firstDurable = max(firstDurable, firstDurableLater)
    case .closed, .destroyed:
      firstKept = stages.count - 1
      firstDurable = firstKept
    case .destroying:
      stages.append(Stage(table: TaskTable(), digest: TaskTable().digest(), call: nil))
    case .gaveUp(let reason):
      throw Finding("the file could no longer be opened: \(reason)")
    case .opened(let digest):
      // There was no power cut, so everything that outlasts a process must be found.
      guard let stage = stages[firstKept...].lastIndex(where: { $0.digest == digest }) else {
        throw Finding("a restarted process found an impossible state")
      }
      stages.removeSubrange((stage + 1)...)
      firstDurable = stage
      firstDurableLater = stage
      firstKept = stage
      interrupt()
    }
  }

  private mutating func submit(_ batch: History.Batch) {
    guard !batch.entries.isEmpty, var table = stages.last?.table else { return }
    for entry in batch.entries {
      precondition(table.replay(entry), "a batch of the history can't be replayed")
    }
    let digest = table.digest()
    stages.append(Stage(table: table, digest: digest, call: batch.call, entries: batch.entries))
  }

  /// Counts interruptions in the last stage, as the process that opened the file did.
  private mutating func interrupt() {
    guard let last = stages.last else { return }
    var table = last.table
    table.interruptLeased()
    stages[stages.count - 1] = Stage(table: table, digest: last.digest, call: last.call)
  }
}

/// A broken promise.
struct Finding: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
