#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What an attempt knows of its task's memory, and what it has decided about the task's end.
///
/// It is a value without a store or a clock: each event is a method that says what to do.
struct AttemptMemory: Sendable {
  /// What becomes of the task when the attempt ends, whatever its handler returns or throws.
  enum Ending: Sendable, Equatable {
    /// If a date was counted by the clock, it was counted from the last one.
    case suspended(until: Date, awaiting: [String], countedFrom: Date?)
    /// Something that the task remembers can't be decoded or opened.
    case parked(reason: String)
    /// The store could not store what the task was to remember.
    case released
  }

  let number: AttemptNumber
  /// What the store is known to hold; `nil` until it was read.
  private(set) var stored: TaskMemory?
  /// The names that this attempt has used, by their bytes.
  private var used: Set<ExactText> = []
  /// Whether the attempt has added to what the task remembers.
  private(set) var hasProgressed = false
  private(set) var ending: Ending?
  /// The checkpoint that was saved last, while it is not stored.
  private(set) var unsaved: [UInt8]?
  /// When a checkpoint was stored last, on the queue's stopwatch.
  private var savedAt: Duration?
  /// Whether a checkpoint is being stored.
  private(set) var isSaving = false

  init(of number: AttemptNumber) { self.number = number }

  /// The bytes under a name; `nil` if there are none, or the memory was not read.
  subscript(name: String) -> [UInt8]? { stored?[name] }

  /// Takes note of what the store has returned, unless something newer is known.
  mutating func read(_ memory: TaskMemory) { if stored == nil { stored = memory } }

  /// Takes note of what the store has returned of values that others complete.
  mutating func reread(_ name: String, in memory: TaskMemory) { stored?[name] = memory[name] }

  /// Begins the use of a name.
  ///
  /// - Returns: Whether the attempt has not used it yet.
  mutating func use(_ name: String) -> Bool { used.insert(ExactText(name)).inserted }

  /// Ends the use of a name under which nothing was stored.
  mutating func giveBack(_ name: String) { used.remove(ExactText(name)) }

  /// Takes note that the store has stored a value under a name.
  mutating func remembered(_ value: [UInt8], _ name: String) {
    // Of checkpoints, a later one than the stored one may be known.
    if name != MemoryName.checkpoint { stored?[name] = value }
    hasProgressed = true
  }

  /// Returns how large the memory is with other bytes under a name.
  func size(with value: [UInt8], under name: String) -> Int {
    let old = self[name].map { name.utf8.count + $0.count } ?? 0
    return (stored?.size ?? 0) - old + name.utf8.count + value.count
  }

  /// Decides what becomes of the task, unless that is decided.
  mutating func decide(_ ending: Ending) {
    // What several sides of a handler await is gathered. The earliest date counts. If any was
    // counted by a clock that was ahead, the handler counts again.
    if case .suspended(let date, let names, let origin) = ending,
      case .suspended(let other, let others, let otherOrigin)? = self.ending
    {
      self.ending = .suspended(
        until: min(date, other),
        awaiting: others + names,
        countedFrom: [origin, otherOrigin].compactMap(\.self).max()
      )
    } else if self.ending == nil {
      self.ending = ending
    }
  }

  // MARK: Checkpoints

  /// How long a checkpoint may wait for the next one before it is stored.
  private static let savingInterval = Duration.seconds(1)

  /// Takes a checkpoint, which is stored now or later.
  mutating func save(_ value: [UInt8]) {
    unsaved = value
    stored?[MemoryName.checkpoint] = value
    hasProgressed = true
  }

  /// Returns the checkpoint to store now, if there is one.
  ///
  /// If it is due, it is stored even if one was stored a moment ago. `again` stores it even if it
  /// is stored already.
  mutating func beginSaving(at time: Duration, isDue: Bool, again: Bool) -> [UInt8]? {
    guard !isSaving, let value = unsaved ?? (again ? self[MemoryName.checkpoint] : nil) else {
      return nil
    }
    if !isDue, let savedAt, time - savedAt < Self.savingInterval { return nil }
    isSaving = true
    unsaved = nil
    return value
  }

  /// Takes note that a checkpoint was stored, or could not be.
  mutating func endSaving(_ value: [UInt8], at time: Duration, isStored: Bool) {
    isSaving = false
    if isStored {
      savedAt = time
    } else if unsaved == nil {
      unsaved = value
    }
  }
}
