/// One SQL statement that adds a task, within a transaction of yours.
///
/// ``TaskQueue/insertStatement(for:uniqueKey:options:)`` makes it. Execute it on a connection of
/// yours to the database of the queue. The task is there when your transaction is committed, and
/// never if it is rolled back. <doc:EnqueueInYourTransaction> shows how, and what must hold.
public struct InsertStatement: Sendable, Equatable {
  /// The ID of the task, if it is added.
  ///
  /// Another task with the same unique key may stand for it (``UniquePolicy``).
  public let id: TaskID
  /// The statement, with a question mark for each parameter in SQLite, and `$1`, `$2` and so on in
  /// PostgreSQL.
  ///
  /// It is the same for all tasks of a queue, so a connection can keep it prepared. It shows no
  /// payload.
  public let text: String
  /// The parameters, in the order of the question marks or numbers.
  public let parameters: [SQLParameter]

  /// Makes a statement; a store does.
  public init(id: TaskID, text: String, parameters: [SQLParameter]) {
    self.id = id
    self.text = text
    self.parameters = parameters
  }
}

/// A parameter of a SQL statement.
public enum SQLParameter: Sendable, Equatable {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case bytes([UInt8])
}
