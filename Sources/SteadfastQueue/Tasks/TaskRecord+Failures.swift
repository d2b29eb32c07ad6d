extension TaskRecord {
  /// How many failures are kept beside the last one.
  private static var maxEarlierFailures: Int { 4 }

  /// The last five failures of the task, the oldest first; empty if none has failed.
  ///
  /// The text of the last one is ``lastError``, and its date is ``failedDate``. The texts before it are
  /// cut to 500 Unicode scalars. That a payload could not be decoded, and that a task was given up
  /// because it had expired, count as failures. A restart forgets them.
  public var failures: [TaskFailure] {
    guard let lastError, let failedDate else { return earlierFailures }
    return earlierFailures + [TaskFailure(reason: lastError, date: failedDate)]
  }

  /// Those of the failures before the last one that are kept.
  static func kept(_ failures: [TaskFailure]) -> [TaskFailure] {
    failures.count > maxEarlierFailures ? Array(failures.suffix(maxEarlierFailures)) : failures
  }

  /// How many bytes a file takes for the failures, about.
  var failureByteCount: Int {
    // Beside each text there are its date, and what parts one from another.
    earlierFailures.reduce(lastError?.utf8.count ?? 0) { $0 + $1.reason.utf8.count + 24 }
  }
}

extension TaskFailure {
  /// In Unicode scalars: what databases count as characters.
  private static var longestEarlierReason: Int { 500 }

  /// The failure as it is kept when it is not the last one any more.
  func shortened() -> TaskFailure {
    let limit = Self.longestEarlierReason
    guard reason.utf8.count > limit, reason.unicodeScalars.count > limit else { return self }
    return TaskFailure(reason: String(reason.unicodeScalars.prefix(limit)), date: date)
  }
}

extension TaskRecord: CustomStringConvertible {
  /// The name, the identity and the state, as in `PostComment 0199… (waiting, retry 2)`.
  ///
  /// It never shows the payload, keys, tags or errors.
  public var description: String {
    "\(name) \(id) (\(state)\(retryCount > 0 ? ", retry \(retryCount)" : ""))"
  }
}
