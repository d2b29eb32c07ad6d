extension TaskRecord {
  /// The number of failures that are kept in addition to the last one.
  private static var maxEarlierFailures: Int { 4 }

  /// The last five failures of the task, the oldest first; empty if it has none.
  ///
  /// The text of the last failure is ``lastError``, and its date is ``failedDate``. The texts of
  /// the earlier ones are cut to 500 Unicode scalars. It also counts as a failure that a payload
  /// could not be decoded, or that a task was abandoned because it had expired. A restart forgets
  /// all failures.
  public var failures: [TaskFailure] {
    guard let lastError, let failedDate else { return earlierFailures }
    return earlierFailures + [TaskFailure(reason: lastError, date: failedDate)]
  }

  /// Notes that an attempt has failed.
  ///
  /// Stores call this on ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` with
  /// a failure, ``TaskChange/abandon(_:failure:retains:)`` and ``TaskChange/park(_:failure:)``.
  ///
  /// The failure becomes the last one. The one that was last becomes the last of
  /// ``earlierFailures``, which keeps the first 500 Unicode scalars of its text.
  public mutating func note(_ failure: TaskFailure) {
    var noted = failureState.value
    if let last = noted.lastFailure {
      noted.earlierFailures = Self.kept(noted.earlierFailures + [last.shortened()])
    }
    noted.lastError = failure.reason
    noted.failedDate = failure.date
    failureState.value = noted
  }

  /// Returns the failures before the last one that are kept.
  package static func kept(_ failures: [TaskFailure]) -> [TaskFailure] {
    failures.count > maxEarlierFailures ? Array(failures.suffix(maxEarlierFailures)) : failures
  }

  /// Roughly how many bytes the failures take in a file.
  var failureByteCount: Int {
    // Each text comes with its date and with separators.
    earlierFailures.reduce(lastError?.utf8.count ?? 0) { $0 + $1.reason.utf8.count + 24 }
  }
}

extension TaskFailure {
  /// The limit of a text in Unicode scalars, which databases count as characters.
  private static var longestEarlierReason: Int { 500 }

  /// Returns the failure as it is kept when it is no longer the last one.
  package func shortened() -> TaskFailure {
    let limit = Self.longestEarlierReason
    guard reason.utf8.count > limit, reason.unicodeScalars.count > limit else { return self }
    return TaskFailure(reason: String(reason.unicodeScalars.prefix(limit)), date: date)
  }
}

extension TaskRecord: CustomStringConvertible {
  /// The name, the ID and the state, as in `PostComment 0199… (waiting, retry 2)`.
  ///
  /// It never shows the payload, keys, tags or errors.
  public var description: String {
    "\(name) \(id) (\(state)\(retryCount > 0 ? ", retry \(retryCount)" : ""))"
  }
}
