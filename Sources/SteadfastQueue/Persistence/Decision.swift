/// What a store has decided about a change, if reading its line again must come to the same.
enum Decision: Sendable {
  case addition(Addition)
  /// The task of a retry is superseded.
  case supersession
  /// These tasks are not restarted along with another one, because their unique keys are held.
  case restart(excluding: [TaskID])
}

/// What became of a new task with a unique key.
enum Addition: Sendable, Equatable {
  /// It became the holder of its key, or has ended already.
  case holder
  /// It became the successor, or the holder if there was none any more.
  case successor
  /// This task took it over.
  case takenOver(by: TaskID)
}
