/// What a background task, or a whole pass of them, has brought.
public enum BackgroundResult: Sendable, Hashable {
  /// There is something new for the user.
  case newData
  /// All is done, and nothing is new.
  case noData
  /// Something could not be done.
  case failed

  /// Returns the result of both together: new data if one of them has some, else a failure if there
  /// was one.
  func combined(with other: BackgroundResult) -> BackgroundResult {
    switch (self, other) {
    case (.newData, _), (_, .newData): .newData
    case (.failed, _), (_, .failed): .failed
    case (.noData, .noData): .noData
    }
  }
}

/// How important a background task is among the others of its scheduler.
///
/// The raw value is the weight in the score by which tasks are ranked.
public enum BackgroundPriority: Int, Sendable, Hashable, CaseIterable {
  /// A fifth of the highest.
  case veryLow = 1
  /// Two fifths of the highest.
  case low
  /// Three fifths of the highest.
  case normal
  /// Four fifths of the highest.
  case high
  /// The highest.
  case veryHigh
}
