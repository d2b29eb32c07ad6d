#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Characters that SQL must escape, also if a combining character follows.
///
/// Swift treats such a pair as one `Character`, which differs from the character to escape.
@Suite(.onServer)
struct QuotingTests {
  private static let strings = [
    "\\", "\"", "\\\u{301}", "\"\u{301}", "a\"\u{301},\"b", "\\\u{301}\"\u{301}", "{}", "null",
  ]

  @Test func `tags, metadata and conditions are read back unchanged`() async throws {
    try await withTables { tables in
      let store = tables.store()
      let date = Date(timeIntervalSince1970: 1_800_000_000)
      let record = TaskRecord(
        id: TaskRecord.numbered(1).id,
        name: "A",
        payload: StoredPayload(Array("{}".utf8), format: .json),
        createdDate: date,
        conditions: Set(Self.strings.map { TaskCondition(rawValue: $0) }),
        tags: Set(Self.strings),
        metadata: Dictionary(uniqueKeysWithValues: Self.strings.map { ($0, $0) }),
        availableDate: date
      )
      #expect(try await store.insert(record) == [.done])
      let found = try #require(try await store.tasks(matching: TaskFilter()).first)
      #expect(found.tags == record.tags)
      #expect(found.metadata.containsExactly(record.metadata) && found.metadata.count == 8)
      let filter = TaskFilter(metadata: record.metadata)
      #expect(try await store.tasks(matching: filter).count == 1)
      #expect(found.conditions == record.conditions)
      try await store.close()
    }
  }

  @Test(arguments: [(nil, "Jobs"), (nil, "pg_jobs"), ("", "jobs"), (nil, "a; drop table b")])
  func `a schema or prefix that is not valid is rejected instead of quoted`(
    schema: String?,
    prefix: String
  ) {
    let error = #expect(throws: PostgreSQLError.self) {
      try PostgreSQLStore.tables(schema: schema, prefix: prefix)
    }
    #expect(error?.code == .invalidArgument)
  }

  @Test(arguments: ["a\"\u{301}b", "\"", "\u{301}\""])
  func `the statements that create the tables can name any schema`(_ schema: String) async throws {
    try await withTables { tables in
      let database = try tables.database()
      let quoted = try #require(
        try database.first("select quote_ident($1::text)", .text(schema)) { $0.text(0) }
      )
      let script = try PostgreSQLStore.tables(schema: schema, prefix: tables.prefix)
      #expect(script.contains("set local search_path = \(quoted);"))
      // A killed test run can leave the schema.
      try database.execute("drop schema if exists \(quoted) cascade")
      try database.execute("create schema \(quoted)")
      try database.execute(script)
      try database.execute("drop schema \(quoted) cascade")
    }
  }
}
#endif
