#if SQLite
import SteadfastDatabases
import SteadfastQueue

extension InsertStatement {
  /// Makes the statement that inserts a task into the view of the tables with a prefix.
  ///
  /// - Throws: What ``TaskChange/checkForm()`` and the payload's encoding throw.
  init(_ record: TaskRecord, _ policy: UniquePolicy, prefix: String) throws {
    let bytes = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let dependencies = record.dependencies.tasks.sorted().flatMap(\.bytes)
    let columns = Schema.insertionColumns + ["counted_from"]
    let marks = Array(repeating: "?", count: columns.count).joined(separator: ", ")
    self.init(
      id: record.id,
      text: "insert into \(prefix)_insertion (form, \(columns.joined(separator: ", "))) "
        + "values (\(Schema.insertionForm), \(marks))",
      parameters: Tables.definition(
        of: record,
        .blob(bytes),
        role: .text(policy.storedName),
        link: dependencies.isEmpty ? .null : .blob(dependencies)
      ).map(SQLParameter.init) + [SQLParameter(.date(record.countedFrom))]
    )
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
