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
      let places: [(queue: String, key: String)] = [
        ("", "q\u{1}x"), ("q", "x"), ("q", "\u{1}x"), ("", "x"), ("", "\u{1}x"),
      ]
      let records = places.enumerated().map { offset, place in
        TaskRecord.make(
          UInt64(offset + 1),
          uniqueKey: place.key,
          orderKey: place.key,
          queue: place.queue
        )
      }
      for record in records { #expect(try await store.insert(record) == [.done]) }
      for (record, place) in zip(records, places) {
        var filter = TaskFilter(uniqueKeys: [place.key], orderKeys: [place.key])
        filter.queue = place.queue
        #expect(try await store.tasks(matching: filter).map(\.id) == [record.id])
        filter.queue = nil
        let ids = zip(records, places).filter { $1.key == place.key }.map(\.0.id)
        let found = try await store.tasks(matching: filter)
        #expect(found.map(\.id) == ids)
        #expect(found.allSatisfy { $0.uniqueKey == place.key && $0.orderKey == place.key })
      }
      for queue in ["", "q"] {
        let claim = try await store.claim(.make(limit: 5, queue: queue))
        #expect(claim.tasks.count == places.count { $0.queue == queue })
      }
    }
  }
}
#endif
