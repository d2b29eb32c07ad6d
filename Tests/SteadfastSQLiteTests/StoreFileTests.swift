#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// The database file of a store: closing, replacing and destroying it.
struct StoreFileTests {
  /// Finishes the stream when the last reference to this object is released.
  private final class Held: Sendable {
    private let end: AsyncStream<Void>.Continuation

    init(_ end: AsyncStream<Void>.Continuation) { self.end = end }

    deinit { end.finish() }

    var time: Double { 0 }
  }

  /// Inserts a task into a store, returns the number of tasks, and releases the store.
  ///
  /// The store retains `held` until the threads of the store have ended.
  private func useStore(
    at url: URL,
    retaining held: Held?,
    inserting number: UInt64
  ) async throws -> Int {
    let store = SQLiteStore(at: url, sharing: nil) { held?.time ?? 0 }
    _ = try await store.insert(.make(number))
    return try await store.count(matching: .unfinished)
  }

  @Test func `another store can use the tables once the last reference to a store is released`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      for number in 1...20 {
        let count = try await useStore(at: url, retaining: nil, inserting: UInt64(number))
        #expect(count == number)
      }
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `a released store leaves only the database file`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      for number in 1...20 {
        let (ends, end) = AsyncStream<Void>.makeStream()
        let count = try await useStore(at: url, retaining: Held(end), inserting: UInt64(number))
        #expect(count == number)
        // Returns when the threads have ended and released their references.
        for await _ in ends {}
        #expect(!FileManager.default.fileExists(atPath: url.path + "-wal"))
      }
      // A copy of the file alone contains everything.
      let copy = folder.appending(path: "copy")
      try FileManager.default.copyItem(at: url, to: copy)
      let count = try database(at: copy).first("select count(*) from steadfast_task") {
        $0.integer(0)
      }
      #expect(count == 20)
    }
  }

  @Test func `a file that can't be inspected does not count as destroyed`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try FileManager.default.createSymbolicLink(
        atPath: url.path,
        withDestinationPath: url.path
      )
      let store = SQLiteStore(at: url)
      for _ in 1...2 {
        #expect(await store.error { try await $0.destroy() }?.code == .cannotOpen)
      }
    }
  }

  @Test(arguments: ["none", "none/db", "file/db", "link"])
  func `destroying a store without a file does nothing`(_ name: String) async throws {
    try await withTemporaryFolder { folder in
      try Data("text".utf8).write(to: folder.appending(path: "file"))
      try FileManager.default.createSymbolicLink(
        atPath: folder.appending(path: "link").path,
        withDestinationPath: folder.appending(path: "none").path
      )
      try await SQLiteStore(at: folder.appending(path: name)).destroy()
    }
  }

  @Test(arguments: [false, true])
  func `a look-up finds the tasks of the store's own file, or reports that the file was replaced`(
    _ looksBefore: Bool
  ) async throws {
    try await withTemporaryFolder { folder in
      let files = FileManager.default
      let link = folder.appending(path: "current")
      func pointLink(to name: String) throws {
        try? files.removeItem(at: link)
        try files.createSymbolicLink(
          atPath: link.path,
          withDestinationPath: folder.appending(path: name).path
        )
      }
      for name in ["old", "new"] {
        let path = folder.appending(path: name)
        try files.createDirectory(at: path, withIntermediateDirectories: true)
        try pointLink(to: name)
        let store = SQLiteStore(at: link.appending(path: "db"))
        if name == "new" { _ = try await store.insert(.make(1), .make(2), .make(3)) }
        try await store.open()
        try await store.close()
      }
      try pointLink(to: "old")
      let store = SQLiteStore(at: link.appending(path: "db"))
      _ = try await store.insert(.make(1))
      if looksBefore { #expect(try await store.count(matching: .unfinished) == 1) }
      // The link now leads to another folder, and the store continues in the old folder.
      try pointLink(to: "new")
      #expect(try await store.count(matching: .unfinished) == 1)
      #expect(try await store.insert(.make(4)) == [.done])
      #expect(try await store.count(matching: .unfinished) == 2)
      // Another file replaces the old file.
      let old = folder.appending(path: "old").appending(path: "db")
      try files.moveItem(at: old, to: folder.appending(path: "moved"))
      try files.copyItem(at: folder.appending(path: "new").appending(path: "db"), to: old)
      let error = await store.error { _ = try await $0.count(matching: .unfinished) }
      #expect(error?.code == .displaced)
    }
  }

  @Test func `the first look-up after the file was replaced finds no tasks of the new file`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let (url, other) = (folder.appending(path: "db"), folder.appending(path: "other"))
      let next = SQLiteStore(at: other)
      _ = try await next.insert(.make(1), .make(2))
      try await next.close()
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try FileManager.default.removeItem(at: url)
      func code() async -> SQLiteError.Code? {
        await store.error { _ = try await $0.tasks(matching: .unfinished) }?.code
      }
      #expect(await code() == .displaced)
      try FileManager.default.moveItem(at: other, to: url)
      for _ in 1...2 { #expect(await code() == .displaced) }
    }
  }

  @Test(arguments: ["-wal", "-shm"], [nil, StoreSharing()])
  func `a store whose log was deleted or replaced stores nothing more`(
    suffix: String,
    sharing: StoreSharing?
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let other = folder.appending(path: "db" + suffix)
      let store = SQLiteStore(at: url, sharing: sharing)
      _ = try await store.insert(.make(1))
      try FileManager.default.removeItem(at: other)
      func code() async -> SQLiteError.Code? {
        await store.error { _ = try await $0.insert(.make(2)) }?.code
      }
      #expect(await code() == .displaced)
      #expect(await store.error { _ = try await $0.count(matching: .unfinished) } != nil)
      try Data().write(to: other)
      #expect(await code() == .displaced)
      // Closing the store writes all acknowledged tasks to the file.
      try await store.close()
      let next = SQLiteStore(at: url)
      #expect(try await next.count(matching: .unfinished) == 1)
      try await next.close()
    }
  }

  @Test func `shared stores that create a database at the same time wait for each other`()
    async throws
  {
    try await withTemporaryFolder { folder in
      for round in 1...20 {
        let url = folder.appending(path: "db\(round)")
        let stores = (0..<8).map { _ in SQLiteStore(at: url, sharing: StoreSharing()) }
        try await withThrowingTaskGroup(of: Void.self) { group in
          for store in stores { group.addTask { try await store.open() } }
          try await group.waitForAll()
        }
      }
    }
  }

  @Test func `if the system can't start a thread, the store's error names the failed call`() throws
  {
    let location = DatabaseLocation(url: URL(filePath: "/nowhere/db"), prefix: "steadfast")
    let found = location.errorForCaller(SystemCallError("pthread_create", EAGAIN)) as? SQLiteError
    let error = try #require(found)
    #expect(error.code == .cannotOpen)
    #expect(error.message.contains("(pthread_create)"))
    #expect(error.message.contains("/nowhere/db"))
  }
}
#endif
