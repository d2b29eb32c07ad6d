#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// From which date the available date of a task was counted.
extension TaskRecord {
  /// The date by the queue's clock from which ``availableDate`` was counted; `nil` if that date was
  /// chosen.
  ///
  /// It is the date of the call that made the task available at once or after a delay, of the
  /// failure that a retry follows, or of the snooze. If it turns out to be a date to come, the
  /// clock was ahead, and a rebase counts from the present date instead (``rebase(to:)``).
  ///
  /// A date that is equal to ``createdDate`` counts as counted from it. So most tasks need no
  /// further value. Set this after ``availableDate``.
  public var countedFrom: Date? {
    get { explicitOrigin ?? (availableDate == createdDate ? createdDate : nil) }
    set { if newValue != countedFrom { failureState.value.countedFrom = newValue } }
  }

  /// What ``countedFrom`` is, unless that follows from ``createdDate``.
  package var explicitOrigin: Date? { failureState.present?.countedFrom }

  // MARK: In a file

  /// What stands in a file for the origin of a date that was chosen.
  static let noOrigin = Date.distantPast

  /// What ``countedFrom`` is if the file does not say so.
  ///
  /// Earlier versions did not store it, and went by this.
  var usualOrigin: Date? {
    if state == .suspended { return nil }
    return availableDate <= createdDate ? createdDate : failedDate
  }

  /// Sets ``countedFrom``, given what the file says.
  mutating func setOrigin(_ stored: Date?) {
    countedFrom = stored == Self.noOrigin ? nil : stored ?? usualOrigin
  }

  /// Returns from which date another available date is counted, given what the file says.
  func origin(_ stored: Date?, of date: Date) -> Date? {
    var record = self
    record.state = .waiting
    record.availableDate = date
    record.setOrigin(stored)
    return record.countedFrom
  }
}
