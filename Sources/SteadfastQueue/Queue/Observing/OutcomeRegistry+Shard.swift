import Synchronization

extension OutcomeRegistry {
  /// What is known about a task.
  struct Known: RareValue {
    var outcome: TaskOutcome?
    var value: (any Sendable)?
    var progress = OutcomeHandle.Progress()
    /// How often it was told that the task has ended, or was restarted.
    var version = 0
    /// Made for the first waiter.
    var waiters: Waiters<TaskOutcome>?
    /// Made for the first waiter.
    var progressWaiters: Waiters<Void>?
    var links = Rare<Links>()

    var isEmpty: Bool {
      outcome == nil && value == nil && progress.number == 0 && version == 0 && waiters == nil
        && progressWaiters == nil && links.isEmpty
    }

    /// Whether nothing was told since a look began that found this version; `nil` is any version.
    func isStill(_ version: Int?) -> Bool { version == nil || version == self.version }
  }

  /// The tasks that have the same outcome as another one.
  struct Links: RareValue {
    /// The task that has superseded this one, whose outcome is that of both.
    var successor: OutcomeHandle?
    /// The tasks that this one has superseded.
    var superseded: [TaskID] = []

    var isEmpty: Bool { successor == nil && superseded.isEmpty }
  }

  /// Some of the tasks that have handles.
  final class Shard: Sendable {
    fileprivate struct Entry: Identifiable, Sendable {
      let id: TaskID
      /// The number of the task's handles.
      var holders = 0
      /// What is known about the task; for most tasks it stays empty as long as they have handles.
      var known = Rare<Known>()

      /// The entry of a free slot.
      static let none = Entry(id: TaskID(high: 0, low: 0))
    }

    /// The entry of each task, in the slot where the task's handles find it, too.
    private let entries = Mutex(IdentifiedSlab(filler: Entry.none))

    func handle(of id: TaskID) -> OutcomeHandle {
      let slot = entries.withLock { entries in
        let slot = entries.slot(of: id) { Entry(id: id) }
        entries[slot].holders += 1
        return slot
      }
      return OutcomeHandle(id: id, slot: slot, part: self)
    }

    /// Changes what is known about a task that has a handle, and returns what was known before.
    ///
    /// A value that is replaced is part of the result, and is freed outside of the lock.
    func change(_ id: TaskID, _ body: (inout Known) -> Void) -> Known? {
      entries.withLock { entries in
        guard let slot = entries.slot(of: id) else { return nil }
        let old = entries[slot].known.value
        body(&entries[slot].known.value)
        return old
      }
    }

    var all: [(id: TaskID, known: Known)] {
      entries.withLock { entries in
        entries.slots.map { (entries[$0].id, entries[$0].known.value) }
      }
    }

    var count: Int { entries.withLock { $0.count } }

    // MARK: For handles

    func letGo(of slot: Int) {
      let last = entries.withLock { entries -> Entry? in
        entries[slot].holders -= 1
        guard entries[slot].holders == 0 else { return nil }
        defer { entries.remove(slot) }
        return entries[slot]
      }
      // The value that a handler returned is freed outside of the lock: it may hold another task.
      withExtendedLifetime(last) {}
    }

    private func known(at slot: Int) -> Known { entries.withLock { $0[slot].known.value } }

    func outcome(at slot: Int) -> TaskOutcome? { known(at: slot).outcome }

    func isSuperseded(at slot: Int) -> Bool { known(at: slot).links.present?.successor != nil }

    func value(at slot: Int) -> (any Sendable)? { known(at: slot).value }

    func progress(at slot: Int) -> (OutcomeHandle.Progress, hasEnded: Bool) {
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
      entries.withLock { entries in
        if let waiters = entries[slot].known.value[keyPath: which] { return waiters }
        let waiters = Waiters<Value>()
        entries[slot].known.value[keyPath: which] = waiters
        return waiters
      }
    }
  }
}
