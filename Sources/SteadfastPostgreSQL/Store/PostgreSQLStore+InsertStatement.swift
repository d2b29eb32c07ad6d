#if PostgreSQL
import SteadfastDatabases
public import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension PostgreSQLStore {
  /// Returns the statement with which a program adds a task within its own transaction.
  ///
  /// It calls the function `steadfast_insert`, or that of your prefix, which a store makes when it
  /// is opened. Its one row has one value, `is_added`: whether the task was added, or another one
  /// stands for it. Queues learn of it when your transaction is committed.
  ///
  /// - Throws: A ``PostgreSQLError`` for a task that a statement can't add: one that does not wait,
  ///   or is a member of a batch. A `TaskQueueError` for one that makes no sense; what a payload's
  ///   encoding throws.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.place.check()
    if let objection = record.objectionToStatement {
      throw PostgreSQLError(.invalidArgument, objection)
    }
    return try InsertStatement(record, policy, core.place)
  }
}

extension InsertStatement {
  /// Makes the statement that calls the function of the tables at a place.
  init(_ record: TaskRecord, _ policy: UniquePolicy, _ place: StorePlace) throws {
    let payload = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let values = Self.values(of: record, policy, payload)
    let marks = values.enumerated().map { "$\($0 + 1)::\($1.type)" }
    let function = (place.quotedSchema.map { $0 + "." } ?? "") + place.prefix
    self.init(
      id: record.id,
      text: "select \(function)_insert(\(Schema.insertionForm), "
        + "\(marks.joined(separator: ", "))) as is_added",
      parameters: values.map(\.value)
    )
  }

  /// The parameters and their types, so that texts and numbers are enough for any library.
  private static func values(
    of record: TaskRecord,
    _ policy: UniquePolicy,
    _ payload: [UInt8]
  ) -> [(type: String, value: SQLParameter)] {
    func key(_ text: String?) -> SQLParameter {
      .init(text: StoredKey.text(of: text, in: record.queue))
    }
    func texts(_ texts: some Collection<String>) -> SQLParameter { .text(Tables.literal(texts)) }
    let limit: Int64? = if case .atMost(let count) = record.maxRetries { Int64(count) } else { nil }
    return [
      ("uuid", .text(record.id.description)),
      ("text", .text(record.name)),
      ("text", .text(record.queue)),
      ("bytea", .bytes(payload)),
      ("text", .text(record.payload.format.rawValue)),
      ("bigint", .integer(Int64(record.payload.version))),
      ("bigint", .integer(Int64(record.priority.rawValue))),
      ("bigint", .init(date: record.createdDate)),
      ("bigint", .init(date: record.availableDate)),
      ("bigint", .init(integer: limit)),
      ("bigint", .integer(record.usesBackoff ? 1 : 0)),
      ("text", key(record.uniqueKey)),
      ("text", .text(policy.storedName)),
      ("bigint", .init(date: record.uniqueUntil)),
      ("bigint", .init(date: record.latestDate)),
      ("text", key(record.orderKey)),
      ("bigint", .integer(record.holdsOrder ? 1 : 0)),
      ("text[]", texts(record.conditions.map(\.rawValue))),
      ("text", .text(record.dependencies.rule.rawValue)),
      ("uuid[]", texts(record.dependencies.tasks.map(\.description))),
      ("text[]", texts(record.tags)),
      ("bigint", .init(integer: record.timeLimit?.microseconds)),
      ("bigint", .init(date: record.expiryDate)),
      ("bigint", .init(date: record.countedFrom)),
    ]
  }
}

extension SQLParameter {
  fileprivate init(text: String?) { self = text.map { .text($0) } ?? .null }
  fileprivate init(integer: Int64?) { self = integer.map { .integer($0) } ?? .null }
  /// Whole microseconds since 2000, since programs write dates in many ways.
  fileprivate init(date: Date?) { self.init(integer: date.map(SQLValue.microseconds)) }
}
#endif
