/// Checks for texts that PostgreSQL can't store: those with the character NUL.
extension TaskChange {
  func checkTexts() throws(TaskQueueError) {
    switch self {
    case .insert(let record, _): try record.checkTexts()
    case .retry(_, _, _, let failure, _):
      if let failure { try failure.checkText("the text of a failure") }
    case .abandon(_, let failure, _), .park(_, let failure):
      try failure.checkText("the text of a failure")
    case .unpark(let name, let queue):
      try TaskQueueError.check(text: name, "name")
      try TaskQueueError.check(queue: queue)
    case .prune(_, _, _, _, let queue): try TaskQueueError.check(queue: queue)
    case .update(_, let update): try update.checkTexts()
    case .setValue(let name, _, _): try TaskQueueError.check(text: name, "the name of a value")
    case .remember(_, let name, _), .complete(_, let name, _):
      try TaskQueueError.check(text: name, "the name of a remembered value")
    case .suspend(_, _, let names, _):
      for name in names { try TaskQueueError.check(text: name, "the name of an awaited value") }
    case .succeed, .release, .cancel, .pause, .resume, .restart, .reschedule, .remove, .extend,
      .rebase:
      break
    }
  }
}

extension TaskRecord {
  func checkTexts() throws(TaskQueueError) {
    try TaskQueueError.check(text: name, "name")
    if let uniqueKey { try TaskQueueError.check(text: uniqueKey, "uniqueKey") }
    if hasExtras {
      try TaskQueueError.check(texts: tags, "tags")
      if let orderKey { try TaskQueueError.check(text: orderKey, "orderKey") }
      try TaskQueueError.check(texts: Set(conditions.map(\.rawValue)), "conditions")
    }
    guard hasFailureState else { return }
    if let lastError { try TaskQueueError.check(text: lastError, "lastError") }
    for failure in earlierFailures { try failure.checkText("the text of an earlier failure") }
  }
}

extension TaskUpdate {
  func checkTexts() throws(TaskQueueError) {
    if let tags { try TaskQueueError.check(texts: tags, "tags") }
  }
}

extension TaskFailure {
  fileprivate func checkText(_ name: @autoclosure () -> String) throws(TaskQueueError) {
    try TaskQueueError.check(text: reason, name())
  }
}

extension TaskQueueError {
  static func check(text: String, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard text.hasNUL else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) has a NUL (U+0000), which a database can't store; leave it out"
    )
  }

  static func check(texts: Set<String>, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    for text in texts { try check(text: text, name()) }
  }
}

extension String {
  /// Whether the text has the character NUL (U+0000), which not every store can hold in a text.
  package var hasNUL: Bool {
    // A text from Objective-C has no contiguous bytes.
    unsafe utf8.withContiguousStorageIfAvailable { unsafe $0.contains(0) } ?? utf8.contains(0)
  }

  /// The text with U+FFFD, the replacement character, in place of each NUL.
  var withoutNUL: String {
    guard hasNUL else { return self }
    var scalars = UnicodeScalarView()
    for scalar in unicodeScalars { scalars.append(scalar == "\0" ? "\u{FFFD}" : scalar) }
    return String(scalars)
  }
}
