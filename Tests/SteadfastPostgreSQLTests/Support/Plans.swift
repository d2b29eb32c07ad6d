#if PostgreSQL
import SteadfastDatabases
import Testing

@testable import SteadfastPostgreSQL

/// The plans by which the server performs statements.
struct Plans {
  /// The statements, with the table names of a single store.
  let statements: [String]

  /// Creates the plans for the statements of all stores whose prefixes start with `prefix`, as if
  /// one store had sent them.
  init(of sql: Set<String>, prefix: String, in tables: TestTables) throws {
    let table = try Regex(
      prefix + #"_\w+?_(task|dependency|memory|value|request|place|schema)\b"#
    )
    let named = sql.map { text in
      text.replacing(/\/\*sqlite.*?\*\//, with: "")
        .replacing(table) { "\(tables.prefix)_\($0[1].substring ?? "")" }
    }
    statements = Set(named).sorted().filter { text in
      ["select", "insert", "update", "delete", "with"].contains { text.hasPrefix($0) }
        && text.contains(tables.prefix) && !text.contains("pg_catalog")
        && !Self.mayReadAll.contains { text.contains($0) }
    }
  }

  /// Substrings of the statements that may read any number of tasks, or a small table.
  private static let mayReadAll = [
    "select count(*) from", "select exists (select 1 from", "order by id limit $",
    "order by id desc limit $",
    "_request where date",
    // When a store opens, and three times per lease.
    "where state = 'running'", "interruption_count = least(",
    // When claims are slow.
    "from pg_stat_user_tables",
    // After a clock has gone back.
    "then created_date end) > $1", "counted_from > $1 or", "set created_date = $1",
    "where failed_date > $1",
  ]

  /// Returns the lines of a plan that scan a table without a condition on an index.
  private func tableScans(in plan: [String]) -> [String] {
    let lines = plan.map { $0.trimmingPrefix { $0 == " " || $0 == "-" || $0 == ">" } } + [""]
    return zip(lines, lines.dropFirst()).compactMap { line, next in
      guard line.hasPrefix("Seq Scan") || line.hasPrefix("Index"), line.contains("Scan") else {
        return nil
      }
      return next.hasPrefix("Index Cond") ? nil : String(line)
    }
  }

  /// Checks that no statement scans a whole table, even if the statement is planned for empty
  /// tables.
  func checkForScans(in tables: TestTables) async throws {
    let store = tables.store()
    try await store.open()
    let database = try tables.database()
    try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
    try database.execute("select set_config('steadfast.offset', '0 s', false)")
    for table in Schema.tables { try database.execute("vacuum analyze steadfast_\(table)") }
    for (number, statement) in statements.enumerated() {
      try database.execute("prepare plan\(number) as \(statement)")
      let count = try database.first(
        """
        select cardinality(parameter_types)::bigint from pg_prepared_statements where name = $1
        """,
        .text("plan\(number)")
      ) { $0.integer(0) }
      let values = Array(repeating: "null", count: count ?? 0).joined(separator: ", ")
      let call = "plan\(number)" + (values.isEmpty ? "" : "(\(values))")
      let plan = try database.allRows("explain (costs off) execute \(call)") { $0.text(0) }
      let reads = tableScans(in: plan)
      #expect(reads.isEmpty, "\(reads)\n\(statement)\n\(plan.joined(separator: "\n"))")
    }
    try await store.close()
  }
}
#endif
