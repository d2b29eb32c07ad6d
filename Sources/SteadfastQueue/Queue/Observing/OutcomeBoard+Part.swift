import Synchronization

extension OutcomeBoard {
  /// What is known about a task.
  struct Known: RareValue {
    var outcome: TaskOutcome?
    var value: (any Sendable)?
    var progress = OutcomeCell.Progress()
    /// Made for the first waiter.
    var waiters: Waiters<TaskOutcome>?
    /// Made for the first waiter.
    var progressWaiters: Waiters<Void>?

    var isEmpty: Bool {
      outcome == nil && value == nil && progress.number == 0 && waiters == nil
        && progressWaiters == nil
    }
  }

  /// Some of the tasks that have cells.
  final class Part: Sendable {
    fileprivate struct Entry: Sendable {
      let id: TaskID
      /// The number of the task's cells.
      var holders = 0
      /// What is known about the task; for most tasks it stays empty as long as they have cells.
      var known = Rare(Known())

      /// The entry of a free slot.
      static let none = Entry(id: TaskID(high: 0, low: 0))
    }

    fileprivate struct State: Sendable {
      /// The entry of each task, in the slot where the task's cells find it, too.
      var entries = Slab(filler: Entry.none)
      var slots = SlotIndex()

      func slot(of id: TaskID) -> Int? { slots.slot(of: id) { entries[$0].id == id } }
    }

    private let state = Mutex(State())

    func cell(of id: TaskID) -> OutcomeCell {
      let slot = state.withLock { state in
        let slot = state.slot(of: id) ?? state.addEntry(of: id)
        state.entries[slot].holders += 1
        return slot
      }
      return OutcomeCell(id: id, slot: slot, part: self)
    }

    /// Changes what is known about a task that has a cell, and returns what was known before.
    ///
    /// A value that is replaced is part of the result, and is freed outside of the lock.
    func change(_ id: TaskID, _ body: (inout Known) -> Void) -> Known? {
      state.withLock { state in
        guard let slot = state.slot(of: id) else { return nil }
        let old = state.entries[slot].known.value
        body(&state.entries[slot].known.value)
        return old
      }
    }

    var all: [(id: TaskID, known: Known)] {
      state.withLock { state in
        state.slots.all.map { (state.entries[$0].id, state.entries[$0].known.value) }
      }
    }

    var count: Int { state.withLock { $0.slots.count } }

    // MARK: For cells

    func letGo(of slot: Int) {
      let last = state.withLock { state -> Entry? in
        state.entries[slot].holders -= 1
        return state.entries[slot].holders == 0 ? state.removeEntry(at: slot) : nil
      }
      // The value that a handler returned is freed outside of the lock: it may hold another task.
      withExtendedLifetime(last) {}
    }

    private func known(at slot: Int) -> Known { state.withLock { $0.entries[slot].known.value } }

    func outcome(at slot: Int) -> TaskOutcome? { known(at: slot).outcome }

    func value(at slot: Int) -> (any Sendable)? { known(at: slot).value }

    func progress(at slot: Int) -> (OutcomeCell.Progress, hasEnded: Bool) {
      let known = known(at: slot)
      return (known.progress, known.outcome != nil)
    }

    func waiters(at slot: Int) -> Waiters<TaskOutcome> {
      waiters(at: slot, \.waiters)
    }

    func progressWaiters(at slot: Int) -> Waiters<Void> {
      waiters(at: slot, \.progressWaiters)
    }

    private func waiters<Value>(
      at slot: Int,
      _ which: WritableKeyPath<Known, Waiters<Value>?>
    ) -> Waiters<Value> {
      state.withLock { state in
        if let waiters = state.entries[slot].known.value[keyPath: which] { return waiters }
        let waiters = Waiters<Value>()
        state.entries[slot].known.value[keyPath: which] = waiters
        return waiters
      }
    }
  }
}

extension OutcomeBoard.Part.State {
  fileprivate mutating func addEntry(of id: TaskID) -> Int {
    let slot = entries.insert(OutcomeBoard.Part.Entry(id: id))
    slots.insert(slot, for: id)
    return slot
  }

  fileprivate mutating func removeEntry(at slot: Int) -> OutcomeBoard.Part.Entry {
    let entry = entries[slot]
    slots.remove(slot, of: entry.id)
    entries.remove(slot)
    return entry
  }
}
