/// What became of a new task with a unique key.
enum Addition: Sendable, Equatable {
  /// It became the holder of its key, or has ended already.
  case holder
  /// It became the successor, or the holder if there was none any more.
  case successor
  /// This task took it over.
  case takenOver(by: TaskID)
}
