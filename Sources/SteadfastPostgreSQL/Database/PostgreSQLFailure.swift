#if PostgreSQL
/// What the library or the server says about a call that has failed.
struct PostgreSQLFailure: Error, Equatable {
  /// The five characters of SQLSTATE; empty if the library itself has failed.
  let state: String
  let text: String
  /// Whether the connection is of no use any more.
  var isConnectionLost = false

  /// The first line of the text, without the word for how bad it is.
  var reason: String {
    let line = text.split(separator: "\n").first ?? ""
    for word in ["ERROR:  ", "FATAL:  "] {
      if let range = line.firstRange(of: word) { return String(line[range.upperBound...]) }
    }
    return line.isEmpty ? "no reason was given" : String(line)
  }

  /// Whether two transactions have collided, so that the same one may succeed at once.
  ///
  /// A key that another session has just taken, a cause that it has just removed, a serialization
  /// failure, and a deadlock.
  var isCollision: Bool { ["23505", "23503", "40001", "40P01"].contains(state) }

  /// Whether the server is not there, is starting or stopping, or has no room for the call now.
  var isPassing: Bool {
    isConnectionLost || ["08", "40", "57"].contains(state.prefix(2))
      || ["53300", "55P03", "55006"].contains(state)
  }

  /// Whether the server takes changes no more, as one that was the primary.
  var isReadOnly: Bool { state == "25006" }

  /// Whether the server has ended a statement that took too long, or waited too long for a lock.
  var tookTooLong: Bool { !isConnectionLost && ["57014", "55P03"].contains(state) }

  /// Whether a statement names a table or a column that is not there.
  var namesWhatIsMissing: Bool { ["42P01", "42703"].contains(state) }
}
#endif
