#if PostgreSQL
import SteadfastQueue

/// The ends of transactions, of which it can be found out whether they were stored.
extension Session {
  /// Commits a transaction, with the row that says so if it has changed something.
  ///
  /// The row takes the place of the one before, which is named by its number: all that were there
  /// while some transaction can see them stand under the session in the index.
  ///
  /// The row can't be written on another session than the one that holds the lock: a pooler that
  /// gives each transaction another session would make the row worth nothing.
  func commit(_ tables: Tables, isRepeatable: Bool) throws {
    let database = tables.database
    do throws(PostgreSQLFailure) {
      if tables.hasChanged {
        requestNumber += 1
        // The column takes no null.
        try database.send(
          """
          with earlier as (
            delete from steadfast_request where session = $1 and number = $4)
          insert into steadfast_request
          values ($1, case when pg_backend_pid() = $3::bigint then $2::bigint end, now())
          """,
          .integer(number),
          .integer(requestNumber),
          .integer(backend),
          .integer(storedRequestNumber)
        )
      }
      try database.send("commit")
      try database.flush()
      if tables.hasChanged { storedRequestNumber = requestNumber }
    } catch  where error.isConnectionLost {
      guard !isRepeatable, try wasStored(unless: !tables.hasChanged) else { throw error }
      if tables.hasChanged { storedRequestNumber = requestNumber }
    } catch {
      undo(on: database)
      throw error.state == "23502" ? place.sharesSessions(error.reason) : error
    }
  }

  /// Whether the last transaction was stored, by the row that it has written.
  ///
  /// A transaction that has changed nothing counts as stored.
  ///
  /// - Throws: ``PostgreSQLError/Code/outcomeUnknown`` if the row can't be read.
  private func wasStored(unless hasNoRow: Bool) throws(PostgreSQLError) -> Bool {
    guard !hasNoRow else { return true }
    tables = nil
    do {
      return try retrying(for: Self.longPatience, waitsForLocks: true) { tables in
        // The row may be there before standbys have it. Another commit waits until they do.
        try tables.database.run(
          "update steadfast_request set date = now() where session = $1 and number = $2",
          .integer(number),
          .integer(requestNumber)
        ) > 0
      }
    } catch {
      let reason =
        switch error {
        case let failure as PostgreSQLFailure: failure.reason
        case let error as PostgreSQLError: error.message
        default: "\(error)"
        }
      throw PostgreSQLError(
        .outcomeUnknown,
        "the connection to \(place.name) was lost while a change was being stored, and whether it "
          + "was stored can't be found out: \(reason)"
      )
    }
  }
}
#endif
