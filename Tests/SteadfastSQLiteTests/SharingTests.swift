#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

private struct Count: TaskPayload { var number: Int }

/// Several stores on one database, and other programs beside them.
struct SharingTests {
  @Test(.timeLimit(.minutes(5)))
  func `a change by another store sends a hint`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url, sharing: StoreSharing())
      let second = SQLiteStore(at: url, sharing: StoreSharing())
      let hints = try #require(first.hints)
      try await first.open()
      _ = try await second.insert(.make(1))
      var iterator = hints.makeAsyncIterator()
      // Returns when the hint has come.
      #expect(await iterator.next() != nil)
      try await first.close()
      #expect(await iterator.next() == nil)
      // A closed store sends no more hints.
      var later = try #require(first.hints).makeAsyncIterator()
      #expect(await later.next() == nil)
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `a sequence of hints that starts while the store waits for calls receives hints`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url, sharing: StoreSharing())
      let second = SQLiteStore(at: url, sharing: StoreSharing())
      try await first.open()
      // During these insertions, the first store's thread starts to wait for the next call.
      for number in 1...20 { _ = try await second.insert(.make(UInt64(number))) }
      var iterator = try #require(first.hints).makeAsyncIterator()
      _ = try await second.insert(.make(21))
      // Returns when the hint has come.
      #expect(await iterator.next() != nil)
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `a new sequence receives hints after all earlier sequences have ended`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url, sharing: StoreSharing())
      let second = SQLiteStore(at: url, sharing: StoreSharing())
      try await first.open()
      for number in 1...10 {
        let hints = try #require(first.hints)
        // The last sequence can end before this sequence starts, or at the same time.
        async let hint: Void? = hints.first { _ in true }
        _ = try await second.insert(.make(UInt64(number)))
        #expect(await hint != nil)
      }
    }
  }

  @Test func `data_version changes only when another connection writes`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let connection = try database(at: url)
      try connection.execute("pragma journal_mode = wal; create table mine (a)")
      let version = try connection.first("pragma data_version") { $0.integer(0) }
      try connection.run("insert into mine values (1)")
      #expect(try connection.first("pragma data_version") { $0.integer(0) } == version)
      try database(at: url).run("insert into mine values (2)")
      #expect(try connection.first("pragma data_version") { $0.integer(0) } != version)
    }
  }

  @Test func `two queues on one database perform each task only once`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let performed = Log<Int>()
      let queues = (0..<2).map { _ in
        TaskQueue(
          persistence: .sqlite(at: url, sharing: StoreSharing(pollInterval: .seconds(60))),
          configuration: TaskQueueConfiguration(succeededRetention: .forever)
        )
      }
      for queue in queues {
        await queue.register(Count.self) { count, _ in performed.add(count.number) }
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for queue in queues { group.addTask { try await queue.run() } }
        let tasks = try await withThrowingTaskGroup(of: EnqueuedTask.self) { enqueuing in
          for number in 0..<100 {
            enqueuing.addTask { try await queues[number % 2].enqueue(Count(number: number)) }
          }
          return try await enqueuing.reduce(into: []) { $0.append($1) }
        }
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
        group.cancelAll()
      }
      #expect(performed.entries.sorted() == Array(0..<100))
    }
  }

  @Test func `a call fails with a transient error while another program writes`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      try await store.open()
      let other = try database(at: url)
      try other.execute("begin immediate")
      let error = await store.error { _ = try await $0.insert(.make(1)) }
      #expect(error?.code == .busy)
      #expect(error?.isTransient == true)
      // Readers do not wait for writers.
      #expect(try await store.count(matching: .unfinished) == 0)
      try other.execute("commit")
      #expect(try await store.insert(.make(1)) == [.done])
    }
  }

  @Test func `a call that fails does not make concurrent calls fail`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      try await store.open()
      try database(at: url).execute(
        """
        create trigger refusal before insert on steadfast_task when new.name = 'bad'
        begin select raise(abort, 'not this one'); end
        """
      )
      let results = await withTaskGroup(of: (Int, Bool).self) { group in
        for number in 1...60 {
          group.addTask {
            let name = number % 3 == 0 ? "bad" : "A"
            do {
              return (number, try await store.insert(.make(UInt64(number), name: name)) == [.done])
            } catch {
              return (number, false)
            }
          }
        }
        return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
      }
      #expect(results == Dictionary(uniqueKeysWithValues: (1...60).map { ($0, $0 % 3 != 0) }))
      #expect(try await store.count(matching: .unfinished) == 40)
    }
  }

  @Test func `a store whose database was deleted stores nothing more`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try FileManager.default.removeItem(at: url)
      #expect(await store.error { _ = try await $0.insert(.make(2)) }?.code == .displaced)
    }
  }

  @Test func `the application's own tables remain when the store is destroyed`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      try database(at: url).execute(
        "create table orders (number integer); insert into orders values (7)"
      )
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      try await store.destroy()
      let left = try tableDefinitions(at: url)
      #expect(left == ["CREATE TABLE orders (number integer)"])
      #expect(try database(at: url).first("select number from orders") { $0.integer(0) } == 7)
      #expect(await store.error { _ = try await $0.insert(.make(2)) }?.code == .closed)
    }
  }

  @Test(arguments: [0, 1, 2_048, 2_049, 1_000_000])
  func `short and long payloads are read back unchanged`(_ count: Int) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) }
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1, bytes: bytes), .make(2))
      let update = TaskUpdate(payload: StoredPayload(bytes, format: .binary))
      _ = try await store.apply([.update(TaskRecord.make(2).id, update)], durability: .durable)
      let request = ClaimRequest(
        limit: 2,
        names: ["A": 2],
        now: Date(timeIntervalSince1970: 1_900_000_000)
      )
      let claim = try await store.claim(request)
      #expect(try claim.tasks.map { try $0.record.payload.bytes() } == [bytes, bytes])
      let ends = claim.tasks.map { TaskChange.succeed($0.lease, at: request.now, retains: false) }
      #expect(try await store.apply(ends, durability: .durable) == [.done, .done])
      let left = try database(at: url).first("select count(*) from steadfast_payload") {
        $0.integer(0)
      }
      #expect(left == 0)
    }
  }
}
#endif
