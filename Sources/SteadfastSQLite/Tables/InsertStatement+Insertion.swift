#if SQLite
import SteadfastDatabases
import SteadfastQueue

extension InsertStatement {
  /// Makes the statement that inserts a task into the view of the tables with a prefix.
  ///
  /// - Throws: What ``TaskChange/checkForm()`` and the payload's encoding throw.
  init(_ record: TaskRecord, _ policy: UniquePolicy, prefix: String) throws {
    let bytes = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let columns = Schema.insertionColumns
    let marks = Array(repeating: "?", count: columns.count).joined(separator: ", ")
    self.init(
      id: record.id,
      text: "insert into \(prefix)_insertion (form, \(columns.joined(separator: ", "))) "
        + "values (\(Schema.insertionForm), \(marks))",
      parameters: Self.values(of: record, bytes, policy).map(SQLParameter.init)
    )
  }

  /// The values of the columns, in their order.
  private static func values(
    of record: TaskRecord,
    _ payload: [UInt8],
    _ policy: UniquePolicy
  ) -> [SQLValue] {
    let dependencies = record.dependencies.tasks.sorted().flatMap(\.bytes)
    return [
      .id(record.id),
      .text(record.name),
      .text(record.queue),
      .blob(payload),
      .text(record.payload.format.rawValue),
      .integer(record.payload.version),
      .integer(record.priority.rawValue),
      .date(record.createdDate),
      .date(record.availableDate),
      .limit(record.maxRetries),
      .flag(record.usesBackoff),
      .text(StoredKey.text(of: record.uniqueKey, in: record.queue)),
      .text(policy.storedName),
      .date(record.uniqueUntil),
      .date(record.latestDate),
      .text(StoredKey.text(of: record.orderKey, in: record.queue)),
      .flag(record.holdsOrder),
      .text(StoredTexts.text(of: record.conditions.map(\.rawValue))),
      .text(record.dependencies.rule.rawValue),
      dependencies.isEmpty ? .null : .blob(dependencies),
      .text(StoredTexts.text(of: record.tags)),
      .duration(record.timeLimit),
      .date(record.expiryDate),
    ]
  }
}

extension UniquePolicy {
  /// The policy as the view has it.
  fileprivate var storedName: String {
    switch self {
    case .keep: "keep"
    case .replace: "replace"
    case .reject: "reject"
    case .join: "join"
    // A policy that this version does not know is refused by the view.
    @unknown default: "unknown"
    }
  }
}

extension SQLParameter {
  fileprivate init(_ value: SQLValue) {
    self =
      switch value {
      case .null: .null
      case .integer(let value): .integer(value)
      case .real(let value): .real(value)
      case .text(let value): .text(value)
      case .blob(let value): .bytes(value)
      case .id(let value): .bytes(value.bytes)
      }
  }
}

extension TaskID {
  /// The 16 bytes of the ID, as they are stored.
  fileprivate var bytes: [UInt8] {
    [high, low].flatMap { half in (0..<8).map { UInt8(truncatingIfNeeded: half >> (56 - 8 * $0)) } }
  }
}
#endif
