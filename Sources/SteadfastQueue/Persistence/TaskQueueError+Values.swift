extension TaskQueueError {
  /// The greatest number of bytes of a value: 64 KiB.
  static var maxValueSize: Int { 64 << 10 }
  /// The greatest number of bytes of a value's name, in UTF-8.
  ///
  /// A database has it in an index, whose rows can't be much longer.
  static var maxValueNameSize: Int { 1 << 10 }

  /// The greatest number of bytes that a task remembers under a name: 128 KiB.
  ///
  /// A queue has a lower limit, so that there is room for what a seal adds.
  static var maxRememberedSize: Int { 128 << 10 }

  /// Checks the name of a value that a task remembers, and the value.
  static func check(
    rememberedUnder name: String,
    _ value: [UInt8]
  ) throws(TaskQueueError) {
    try check(valueNamed: name)
    guard value.count > maxRememberedSize else { return }
    throw TaskQueueError(
      .invalidArgument,
      "the value to remember under '\(name)' has \(value.count) bytes; a task remembers at most "
        + "\(maxRememberedSize) under a name"
    )
  }

  /// Checks the name of a value, and values.
  static func check(valueNamed name: String, _ values: [UInt8]?...) throws(TaskQueueError) {
    let size = name.utf8.count
    guard 1...maxValueNameSize ~= size else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a value has \(size) bytes of UTF-8; give it 1 to \(maxValueNameSize)"
      )
    }
    for value in values {
      guard let value, value.count > maxValueSize else { continue }
      throw TaskQueueError(
        .invalidArgument,
        "a value has \(value.count) bytes; a store holds at most \(maxValueSize) under a name"
      )
    }
  }

  /// The error for a store that refuses each comparison with what it has just returned.
  static func comparesWrongly(
    _ store: any Persistence,
    _ what: String,
    changedBy others: String = "other callers"
  ) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) says each time that \(what) is not the one that it has just returned: "
        + "\(others) change it all the time, or the store compares wrongly"
    )
  }
}
