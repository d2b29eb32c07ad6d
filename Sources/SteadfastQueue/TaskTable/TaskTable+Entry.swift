#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// A task and its place in the table.
  ///
  /// It takes 64 bytes. The order of the properties puts those that are smaller than a word side by
  /// side.
  struct Entry: Identifiable, Sendable {
    var record: TaskRecord
    private var flags: Flags = []
    private var narrowLane: Int32
    var place: Place
    /// Whether the task stands in the line of its place.
    var isInLine = false
    /// Whether the table's memories have something for the task.
    var remembers = false
    private var narrowByteCount: Int32 = 0
    /// The position in line; it rises when the task goes to the end of a line.
    ///
    /// It is 0 until the task stands in a line.
    var position: UInt64 = 0

    init(record: TaskRecord, place: Place, lane: Int) {
      self.record = record
      self.place = place
      narrowLane = Int32(lane)
    }

    var id: TaskID { record.id }

    private struct Flags: OptionSet, Sendable {
      let rawValue: UInt8
      static let isReserved = Flags(rawValue: 1)
      static let hasLostKey = Flags(rawValue: 2)
      static let isOrdered = Flags(rawValue: 4)
      static let isBehindHead = Flags(rawValue: 8)
      static let isAwaited = Flags(rawValue: 16)
      static let waitsForOthers = Flags(rawValue: 32)
      static let isBound = Flags(rawValue: 64)
      static let isEndingBadly = Flags(rawValue: 128)

      mutating func set(_ flag: Flags, _ isSet: Bool) {
        if isSet { insert(flag) } else { remove(flag) }
      }
    }

    /// Whether a staged change holds the task.
    var isReserved: Bool {
      get { flags.contains(.isReserved) }
      set { flags.set(.isReserved, newValue) }
    }

    /// Whether a later task has taken its unique key, as earlier versions of the package did.
    var hasLostKey: Bool {
      get { flags.contains(.hasLostKey) }
      set { flags.set(.hasLostKey, newValue) }
    }

    /// Whether another task has its unique key, though it has not ended.
    var isKeyless: Bool { hasLostKey || record.isDisplaced }

    /// Whether the task is among those that wait for one another because of an order key.
    var isOrdered: Bool {
      get { flags.contains(.isOrdered) }
      set { flags.set(.isOrdered, newValue) }
    }

    /// Whether another task is the head of its order key.
    var isBehindHead: Bool {
      get { flags.contains(.isBehindHead) }
      set { flags.set(.isBehindHead, newValue) }
    }

    /// Whether other tasks wait for its end, or have waited.
    var isAwaited: Bool {
      get { flags.contains(.isAwaited) }
      set { flags.set(.isAwaited, newValue) }
    }

    /// Whether a task that it waits for has not ended.
    var waitsForOthers: Bool {
      get { flags.contains(.waitsForOthers) }
      set { flags.set(.waitsForOthers, newValue) }
    }

    /// Whether a staged change to another task will change this one, too.
    var isBound: Bool {
      get { flags.contains(.isBound) }
      set { flags.set(.isBound, newValue) }
    }

    /// Whether a staged change ends it without success, or puts its successor in its place.
    var isEndingBadly: Bool {
      get { flags.contains(.isEndingBadly) }
      set { flags.set(.isEndingBadly, newValue) }
    }

    /// Whether no claim takes the task, because of others: it waits for its turn.
    var isHeld: Bool { !flags.isDisjoint(with: [.isBehindHead, .waitsForOthers, .isBound]) }

    /// The lane of the task's name and its conditions.
    var lane: Int {
      get { Int(narrowLane) }
      set { narrowLane = Int32(newValue) }
    }

    /// About how many bytes a file takes for the task; 0 where there is no file.
    var byteCount: Int {
      get { Int(narrowByteCount) }
      // A line of a file has at most 16 MiB. Only where there is no file may a text be longer.
      set { narrowByteCount = Int32(clamping: newValue) }
    }

    /// The content of a free slot.
    static let none = Entry(
      record: TaskRecord(
        id: TaskID(high: 0, low: 0),
        name: "",
        payload: StoredPayload([], format: .binary),
        createdDate: .distantPast,
        availableDate: .distantPast
      ),
      place: .staged,
      lane: -1
    )
  }

  /// Where a task is.
  enum Place: Sendable, Equatable {
    case staged, waiting, ready, leased(token: UInt64), parked, paused, finished
    /// It is suspended without a date: only a completion or a request makes it wait.
    case suspended
    /// It waits for others: the holder of its unique key, the head of its order key, or the tasks
    /// that it names.
    case held
  }
}
