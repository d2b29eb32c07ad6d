import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct CompactionPolicyTests {
  @Test(arguments: [
    // A small file is compacted if it is four times as large as its live tasks,
    (3, 0, 1000, 0, false), (4, 1, 1000, 100, true),
    (39, 10, 1000, 100, false), (40, 10, 1000, 100, true),
    // a large file if it is 32 MiB larger than twice its live tasks,
    (231, 100, 1000, 100, false), (232, 100, 1000, 100, true),
    // but only if half of the lines are dead.
    (40, 10, 1000, 600, false),
  ])
  func `a file is compacted when most of its bytes and most of its lines are dead`(
    megabytes: Int,
    compactMegabytes: Int,
    records: Int,
    liveRecords: Int,
    isDue: Bool
  ) {
    let policy = CompactionPolicy()
    #expect(
      policy.isDue(
        size: megabytes << 20,
        compactSize: compactMegabytes << 20,
        records: records,
        liveRecords: liveRecords
      ) == isDue
    )
  }

  @Test(arguments: [
    (nil, CompactionPolicy().minimumSize, CompactionPolicy().spareSize),
    (64 << 20, CompactionPolicy().minimumSize, 8 << 20), (80_000, 80_000, 10_000),
  ])
  func `a file with a small size limit is compacted sooner`(
    limit: Int?,
    minimumSize: Int,
    spareSize: Int
  ) {
    let core = JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      options: JSONFileStore.Options(maxFileSize: limit),
      thread: { ManualExecutor { 0 } }
    ) { (nil, MemoryStorage()) }
    #expect(core.compactionPolicy.minimumSize == minimumSize)
    #expect(core.compactionPolicy.spareSize == spareSize)
  }
}
