@testable import SteadfastQueue

/// A mix of calls that callers make to a store.
struct Workload: Sendable, CustomStringConvertible {
  let name: String
  /// The number of rounds of concurrent calls.
  var rounds = 12
  /// The maximum number of concurrent calls.
  var concurrentCalls = 1
  /// The maximum number of changes in a call.
  var batchSize = 1
  /// The percentage of calls that are relaxed.
  var relaxedShare = 0
  /// The percentage of calls that claim or end tasks.
  var workShare = 0
  /// The percentage of insertions that have one of a few unique keys.
  var keyedShare = 0
  /// The percentage of calls with changes that set a value.
  var valueShare = 20
  /// The percentage of rounds after which the store is closed, or its process ends, and another
  /// process opens the file.
  var restartShare = 0
  /// The percentage of closings that delete the file.
  var destructionShare = 0
  /// The number of disk calls in a thousand that fail.
  var faultShare = 0
  /// The file size, in bytes, from which the file is compacted in small steps.
  var compactionSize = Int.max
  var flushing = JSONFileStore.Flushing.eachBatch
  /// The number of bytes of the file to reserve at a time.
  var reservedSpace: Int?

  var description: String { name }

  static let all = [
    Workload(name: "durable insertions"),
    Workload(name: "batches", rounds: 10, batchSize: 5, keyedShare: 30),
    Workload(
      name: "many callers",
      rounds: 6,
      concurrentCalls: 5,
      batchSize: 3,
      workShare: 30,
      keyedShare: 20
    ),
    Workload(name: "work", rounds: 16, concurrentCalls: 2, batchSize: 2, workShare: 65),
    Workload(
      name: "relaxed",
      rounds: 14,
      concurrentCalls: 3,
      batchSize: 3,
      relaxedShare: 100,
      workShare: 40
    ),
    Workload(
      name: "relaxed and durable",
      rounds: 14,
      concurrentCalls: 3,
      batchSize: 3,
      relaxedShare: 60,
      workShare: 40,
      keyedShare: 30
    ),
    Workload(
      name: "restarts",
      rounds: 14,
      concurrentCalls: 2,
      batchSize: 2,
      relaxedShare: 30,
      workShare: 50,
      keyedShare: 20,
      restartShare: 35,
      destructionShare: 10
    ),
    Workload(
      name: "failing disk",
      rounds: 14,
      concurrentCalls: 3,
      batchSize: 3,
      relaxedShare: 30,
      workShare: 40,
      keyedShare: 20,
      restartShare: 10,
      destructionShare: 10,
      faultShare: 60
    ),
    Workload(
      name: "compaction",
      rounds: 36,
      concurrentCalls: 2,
      batchSize: 3,
      workShare: 80,
      keyedShare: 20,
      compactionSize: 1000
    ),
    Workload(
      name: "compaction with keys",
      rounds: 30,
      concurrentCalls: 2,
      workShare: 60,
      keyedShare: 90,
      restartShare: 5,
      compactionSize: 600
    ),
    Workload(
      name: "compaction, relaxed, restarts",
      rounds: 36,
      concurrentCalls: 3,
      batchSize: 2,
      relaxedShare: 50,
      workShare: 80,
      keyedShare: 30,
      restartShare: 15,
      compactionSize: 800
    ),
    Workload(
      name: "compaction on a failing disk",
      rounds: 36,
      concurrentCalls: 2,
      batchSize: 2,
      relaxedShare: 20,
      workShare: 80,
      keyedShare: 20,
      restartShare: 5,
      faultShare: 25,
      compactionSize: 800
    ),
    Workload(
      name: "values, compaction, restarts",
      rounds: 30,
      concurrentCalls: 4,
      batchSize: 2,
      relaxedShare: 40,
      workShare: 30,
      valueShare: 80,
      restartShare: 10,
      compactionSize: 700
    ),
    Workload(
      name: "values on a failing disk",
      rounds: 20,
      concurrentCalls: 4,
      batchSize: 2,
      relaxedShare: 30,
      workShare: 30,
      valueShare: 80,
      restartShare: 10,
      faultShare: 50,
      compactionSize: 900
    ),
    Workload(
      name: "flushed at intervals",
      rounds: 16,
      concurrentCalls: 2,
      batchSize: 3,
      workShare: 50,
      restartShare: 15,
      compactionSize: 1000,
      flushing: .atMostEvery(.seconds(1))
    ),
    Workload(
      name: "flushed at intervals on a failing disk",
      rounds: 16,
      concurrentCalls: 2,
      batchSize: 3,
      workShare: 50,
      restartShare: 15,
      faultShare: 40,
      compactionSize: 1000,
      flushing: .atMostEvery(.seconds(1))
    ),
    Workload(
      name: "flushed by the system",
      rounds: 16,
      concurrentCalls: 2,
      batchSize: 3,
      workShare: 50,
      restartShare: 15,
      faultShare: 10,
      flushing: .leftToSystem
    ),
    Workload(
      name: "reserved space, restarts",
      rounds: 16,
      concurrentCalls: 3,
      batchSize: 2,
      relaxedShare: 30,
      workShare: 50,
      keyedShare: 20,
      restartShare: 20,
      compactionSize: 3_000,
      reservedSpace: 900
    ),
    Workload(
      name: "reserved space on a failing disk",
      rounds: 16,
      concurrentCalls: 3,
      batchSize: 2,
      relaxedShare: 30,
      workShare: 50,
      restartShare: 10,
      faultShare: 40,
      compactionSize: 3_000,
      reservedSpace: 700
    ),
  ]
}
