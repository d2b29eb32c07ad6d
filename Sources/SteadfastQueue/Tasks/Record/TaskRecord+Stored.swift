#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskRecord {
  /// Returns whether a task that is in the store is this new one, which was stored before.
  ///
  /// Stores call it when the ID of a new task is taken: a queue may send an insertion again if the
  /// answer was lost. What never changes must be the same: the ID, the name, the queue, the unique
  /// key and the order key, and the payload. The date on which the task was made is the same to a
  /// microsecond, or an earlier one since a rebase. All else may have changed since.
  public func isStored(as other: TaskRecord) -> Bool {
    guard id == other.id, name.isExactly(other.name), queue.isExactly(other.queue),
      uniqueKey.map(ExactText.init) == other.uniqueKey.map(ExactText.init),
      orderKey.map(ExactText.init) == other.orderKey.map(ExactText.init),
      other.createdDate < createdDate || other.createdDate.isStored(as: createdDate),
      payload.format == other.payload.format, payload.version == other.payload.version,
      let bytes = try? payload.bytes(), let others = try? other.payload.bytes()
    else { return false }
    return bytes == others
  }
}

extension Date {
  /// Returns whether the date may be another one that was stored to a microsecond.
  func isStored(as other: Date) -> Bool {
    abs(timeIntervalSince(other)) <= 1e-6 + 4 * other.timeIntervalSince1970.ulp
  }
}
