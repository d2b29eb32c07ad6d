#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// A task at its slot.
  ///
  /// 64 bytes: what is smaller than a word lies side by side, hence the order.
  struct Entry: Sendable {
    var record: TaskRecord
    /// Whether a staged change holds the task.
    var isReserved = false
    /// Whether a later task has taken its unique key while it was being performed.
    var hasLostKey = false
    private let narrowLane: Int32
    var place: Place
    /// Whether the task stands in the line of its place.
    var isInLine = false
    private var narrowByteCount: Int32 = 0
    /// Rises when the task goes to the end of a line; 0 until it stands in one.
    var position: UInt64 = 0

    init(record: TaskRecord, place: Place, lane: Int) {
      self.record = record
      self.place = place
      narrowLane = Int32(lane)
    }

    /// The lane of the task's name.
    var lane: Int { Int(narrowLane) }

    /// How many bytes a file takes for the task, about; 0 where there is none.
    var byteCount: Int {
      get { Int(narrowByteCount) }
      // A line has 16 MiB at most; only where there is no file may a text be longer.
      set { narrowByteCount = Int32(clamping: newValue) }
    }

    /// What a free slot holds.
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
  }
}
