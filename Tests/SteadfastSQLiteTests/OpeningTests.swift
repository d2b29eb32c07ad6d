#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Files that a store can't open, and leaves unchanged.
struct OpeningTests {
  @Test func `tables of a newer version are rejected and left unchanged`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url)
      _ = try await first.insert(.make(1))
      try await first.close()
      try database(at: url).execute("update steadfast_schema set version = 99")
      let before = try tableDefinitions(at: url)
      let store = SQLiteStore(at: url)
      let error = await store.openingError()
      #expect(error?.code == .newerVersion)
      #expect(
        error?.message
          == "the tables steadfast_… of \(url.path) were made by a newer version of Steadfast: "
          + "they have version 99, and this package knows versions up to \(Schema().version). The "
          + "tables were not changed; update the package Steadfast"
      )
      #expect(await store.error { try await $0.destroy() }?.code == .newerVersion)
      #expect(try tableDefinitions(at: url) == before)
      let count = try database(at: url).first("select count(*) from steadfast_task") {
        $0.integer(0)
      }
      #expect(count == 1)
    }
  }

  @Test(arguments: ["task", "schema", "value", "insertion"])
  func `a table of another program is rejected and left unchanged`(
    _ name: String
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try database(at: url).execute("create table steadfast_\(name) (mine text)")
      let before = try tableDefinitions(at: url)
      let store = SQLiteStore(at: url)
      let error = await store.openingError()
      #expect(error?.code == .foreignTable)
      #expect(
        error?.message
          == "\(url.path) has a table steadfast_\(name) that was not made by Steadfast. The table "
          + "was not changed; choose another prefix for the tables"
      )
      #expect(await store.error { try await $0.destroy() }?.code == .foreignTable)
      #expect(try tableDefinitions(at: url) == before)
      let mode = try database(at: url).first("pragma journal_mode") { $0.text(0) }
      #expect(mode == "delete")
      // With another prefix, the store has its own tables beside that table.
      let other = SQLiteStore(at: url, prefix: "jobs")
      #expect(try await other.insert(.make(1)) == [.done])
    }
  }

  @Test func `a file that is not a database is rejected and left unchanged`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let text = Data(repeating: UInt8(ascii: "x"), count: 5_000)
      try text.write(to: url)
      let error = await SQLiteStore(at: url).openingError()
      #expect(error?.code == .notADatabase)
      #expect(
        error?.message
          == "\(url.path) is not a SQLite database, or is an encrypted one. It was not changed; choose "
          + "another file"
      )
      #expect(try Data(contentsOf: url) == text)
    }
  }

  @Test func `a damaged database is reported, and nothing is lost silently`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      for number in 1...200 { _ = try await store.insert(.make(UInt64(number))) }
      try await store.close()
      // Overwrites all pages but the first one.
      var bytes = try Data(contentsOf: url)
      try #require(bytes.count > 3 * 4_096)
      bytes.replaceSubrange(4_096..., with: Data(repeating: 0xA5, count: bytes.count - 4_096))
      try bytes.write(to: url)
      let error = await SQLiteStore(at: url).openingError()
      #expect(error?.code == .damaged)
      #expect(error?.message.contains("restore a backup, or save what can be read") == true)
    }
  }

  /// Returns a database, and the contents of its files while all changes are in the `-wal` file.
  private func databaseWithLog(in folder: URL) async throws -> (URL, main: Data, log: Data) {
    let url = folder.appending(path: "db")
    let store = SQLiteStore(at: url)
    _ = try await store.insert(.make(1))
    let files = try (Data(contentsOf: url), Data(contentsOf: URL(filePath: url.path + "-wal")))
    try await store.close()
    return (url, files.0, files.1)
  }

  @Test(arguments: [2_048, 100, 16])
  func `a database shorter than its first page is rejected and left unchanged`(
    _ count: Int
  ) async throws {
    try await withTemporaryFolder { folder in
      let (url, main, log) = try await databaseWithLog(in: folder)
      let rest = main.prefix(count)
      try rest.write(to: url)
      let store = SQLiteStore(at: url)
      let error = await store.openingError()
      #expect(error?.code == .damaged)
      #expect(
        error?.message
          == "\(url.path) was truncated: it has \(count) bytes, less than one page of a database. "
          + "The file was not changed; restore a backup"
      )
      #expect(await store.error { try await $0.destroy() }?.code == .damaged)
      #expect(try Data(contentsOf: url) == rest)
      // With its log, the database is complete.
      try log.write(to: URL(filePath: url.path + "-wal"))
      #expect(try await SQLiteStore(at: url).count(matching: .unfinished) == 1)
    }
  }

  #if os(Linux)
  /// When a process closes a file, the system releases all locks that the process has on that file,
  /// even those of SQLite.
  @Test func `the program's own connection keeps its locks when a store opens the file`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try await store.close()
      let own = try database(at: url)
      #expect(try own.hasRow("select 1 from steadfast_task"))
      let number = try FileManager.default.attributesOfItem(atPath: url.path)[.systemFileNumber]
      let inode = try #require(number as? UInt64)
      // The system lists the locks in parts. While other tests lock and unlock, a list may lack
      // some of the locks, so look more than once.
      func hasLocks() throws -> Bool {
        try (1...20).contains { _ in
          let locks = try FileHandle(forReadingFrom: URL(filePath: "/proc/locks"))
          var text = Data()
          while let lines = try locks.read(upToCount: 4_096), !lines.isEmpty { text += lines }
          return String(decoding: text, as: UTF8.self).split(separator: "\n").contains {
            $0.contains(" POSIX ") && $0.contains(":\(inode) ")
          }
        }
      }
      try #require(try hasLocks())
      try await SQLiteStore(at: url).open()
      #expect(try hasLocks())
      #expect(try own.hasRow("select 1 from steadfast_task"))
    }
  }
  #endif

  @Test func `an empty file counts as a new database, unless its log exists`() async throws {
    try await withTemporaryFolder { folder in
      let (url, _, log) = try await databaseWithLog(in: folder)
      let wal = URL(filePath: url.path + "-wal")
      try Data().write(to: url)
      try log.write(to: wal)
      let error = await SQLiteStore(at: url).openingError()
      #expect(error?.code == .damaged)
      #expect(
        error?.message
          == "\(url.path) was truncated: it is empty, but \(url.path)-wal still has its changes. "
          + "Neither file was changed; restore a backup, or remove both files"
      )
      #expect(try Data(contentsOf: url).isEmpty)
      #expect(try Data(contentsOf: wal) == log)
      try FileManager.default.removeItem(at: wal)
      #expect(try await SQLiteStore(at: url).insert(.make(1)) == [.done])
    }
  }

  @Test func `a damaged table does not count as a table of another program`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try await store.close()
      let root = try database(at: url).first(
        "select rootpage from sqlite_schema where name = 'steadfast_schema'"
      ) { $0.integer(0) }
      let page = try #require(root) - 1
      var bytes = try Data(contentsOf: url)
      bytes.replaceSubrange(
        page * 4_096..<(page + 1) * 4_096,
        with: Data(repeating: 0xA5, count: 4_096)
      )
      try bytes.write(to: url)
      #expect(await SQLiteStore(at: url).openingError()?.code == .damaged)
    }
  }

  @Test func `the error for a missing folder says that the folder must exist`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "missing").appending(path: "db")
      let error = await SQLiteStore(at: url).openingError()
      #expect(error?.code == .cannotOpen)
      #expect(error?.message.contains("its folder must exist") == true)
    }
  }

  @Test(arguments: [
    "", "1a", "a-b", "a b", "sqlite_a", "é", "a\"", String(repeating: "a", count: 41),
  ])
  func `a prefix that is not an identifier is rejected`(_ prefix: String) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      #expect(await SQLiteStore(at: url, prefix: prefix).openingError()?.code == .invalidArgument)
      #expect(!FileManager.default.fileExists(atPath: url.path))
    }
  }

  @Test func `a URL that is not a file URL is rejected`() async throws {
    let url = try #require(URL(string: "https://example.org/db"))
    #expect(await SQLiteStore(at: url).openingError()?.code == .invalidArgument)
  }

  @Test func `an unshared store locks out other stores until it is closed`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url)
      try await first.open()
      for sharing in [nil, StoreSharing()] {
        let other = SQLiteStore(at: url, sharing: sharing)
        let error = await other.openingError()
        #expect(error?.code == .inUse)
        #expect(error?.message.contains("another store of this process uses it") == true)
        #expect(await other.error { try await $0.destroy() }?.code == .inUse)
      }
      // Tables with another prefix are separate.
      let apart = SQLiteStore(at: url, prefix: "other")
      #expect(try await apart.insert(.make(1)) == [.done])
      try await first.close()
      let second = SQLiteStore(at: url)
      #expect(try await second.count(matching: .unfinished) == 0)
    }
  }

  @Test func `tables of an older version are migrated to the current one`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try await store.close()
      let next = Schema(steps: Schema().steps + ["create table steadfast_more (a text)"])
      let connection = try database(at: url)
      #expect(try next.version(in: connection, prefix: "steadfast") == Schema().version)
      try next.migrate(connection, prefix: "steadfast")
      #expect(try next.version(in: connection, prefix: "steadfast") == next.version)
      #expect(try connection.hasRow("select 1 from sqlite_schema where name = 'steadfast_more'"))
      #expect(try connection.first("select count(*) from steadfast_task") { $0.integer(0) } == 1)
      // A second migration does nothing, and the older schema rejects this newer version.
      try next.migrate(connection, prefix: "steadfast")
      #expect(throws: Schema.Refusal.newerVersion(next.version)) {
        try Schema().version(in: connection, prefix: "steadfast")
      }
    }
  }

  @Test func `a migration step that fails leaves the version unchanged`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try await SQLiteStore(at: url).open()
      let wrong = Schema(
        steps: Schema().steps + ["create table steadfast_a (a); create nonsense"]
      )
      let connection = try database(at: url)
      try connection.execute("begin immediate")
      #expect(throws: SQLiteFailure.self) { try wrong.migrate(connection, prefix: "steadfast") }
      try connection.execute("rollback")
      #expect(try Schema().version(in: connection, prefix: "steadfast") == Schema().version)
      #expect(try !connection.hasRow("select 1 from sqlite_schema where name = 'steadfast_a'"))
    }
  }
}
#endif
