#if SQLite
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

struct KeyTests {
  @Test func `the keys of two queues are separate, whatever characters the keys contain`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let store = SQLiteStore(at: folder.appending(path: "db"))
      let pairs: [(queue: String, key: String)] = [
        ("", "q\u{1}x"), ("q", "x"), ("q", "\u{1}x"), ("", "x"), ("", "\u{1}x"),
      ]
      let records = pairs.enumerated().map { offset, pair in
        TaskRecord.make(
          UInt64(offset + 1),
          uniqueKey: pair.key,
          orderKey: pair.key,
          queue: pair.queue
        )
      }
      for record in records { #expect(try await store.insert(record) == [.done]) }
      for (record, pair) in zip(records, pairs) {
        var filter = TaskFilter(uniqueKeys: [pair.key], orderKeys: [pair.key])
        filter.queue = pair.queue
        #expect(try await store.tasks(matching: filter).map(\.id) == [record.id])
        filter.queue = nil
        let ids = zip(records, pairs).filter { $1.key == pair.key }.map(\.0.id)
        let found = try await store.tasks(matching: filter)
        #expect(found.map(\.id) == ids)
        #expect(found.allSatisfy { $0.uniqueKey == pair.key && $0.orderKey == pair.key })
      }
      for queue in ["", "q"] {
        let claim = try await store.claim(.make(limit: 5, queue: queue))
        #expect(claim.tasks.count == pairs.count { $0.queue == queue })
      }
    }
  }
}
#endif
