import SteadfastQueue

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#else
import Darwin
#endif

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private let writes = 2000
private let tasks = 20_000
private let bare = "bare append and flush of 200 bytes"
private let sqliteEnqueue = "SQLite FULL: enqueue, one transaction each"
private let sqliteWhole = "SQLite FULL: enqueue, claim, complete, each"
private let sqliteEnqueueBatch = "SQLite FULL: enqueue, a transaction of 100"
private let sqliteWholeBatch = "SQLite FULL: the same by 100"

/// The kind of store that a row measures.
private enum Kind: String {
  case file = ""
  case reserving = ", reserving"

  func store(at url: URL) -> any Persistence {
    switch self {
    case .file: JSONFileStore(at: url)
    case .reserving: JSONFileStore(at: url, options: .init(reservedSpace: 1 << 20))
    }
  }
}

/// Durable tasks in a file: `enqueue` returns only after the task is durable, and each end is
/// durable too.
///
/// Two more kinds of rows are for comparison. One kind shows the limit of the disk: repeated
/// appends of the same number of bytes, each with a flush. The other kind shows the cost of a
/// SQLite table with the same guarantees.
let fileBenchmarks =
  [
    Benchmark(bare, iterations: writes) { count in
      try await withScratchFile { url in
        let file = try AppendedFile(url)
        for _ in 0..<count { try file.appendLine() }
      }
    }
  ] + tableBenchmarks + [
    enqueueBenchmark(producers: 1, iterations: writes, against: bare),
    enqueueBenchmark(producers: 1, iterations: writes, against: bare, .reserving),
    enqueueBenchmark(producers: 8, iterations: tasks, against: sqliteEnqueue),
    enqueueBenchmark(producers: 64, iterations: tasks, against: sqliteEnqueueBatch),
    enqueueBenchmark(producers: 64, iterations: tasks, against: sqliteEnqueueBatch, .reserving),
    Benchmark("enqueue of batches of 100", against: sqliteEnqueueBatch, iterations: tasks) {
      count in
      try await withScratchFile { url in
        let store = JSONFileStore(at: url)
        let queue = TaskQueue(persistence: store)
        for first in stride(from: 0, to: count, by: 100) {
          try await queue.enqueue(contentsOf: (first..<first + 100).map { Increment(number: $0) })
        }
        try await store.close()
      }
    },
    endToEndBenchmark(producers: 1, workers: 1, iterations: writes, against: sqliteWhole),
    endToEndBenchmark(producers: 64, workers: 1, iterations: tasks, against: sqliteWholeBatch),
    endToEndBenchmark(producers: 64, workers: 8, iterations: 3 * tasks, against: sqliteWholeBatch),
    endToEndBenchmark(
      producers: 64,
      workers: 8,
      iterations: 3 * tasks,
      against: sqliteWholeBatch,
      .reserving
    ),
  ]

private func enqueueBenchmark(
  producers: Int,
  iterations: Int,
  against baseline: String,
  _ kind: Kind = .file
) -> Benchmark {
  let name = "enqueue, \(producers) at a time\(kind.rawValue)"
  return Benchmark(name, against: baseline, iterations: iterations) { count in
    try await withScratchFile { url in
      let store = kind.store(at: url)
      try await enqueueTasks(count, to: Steadfast(store, workers: 1).queue, producers: producers)
      try await store.close()
    }
  }
}

private func endToEndBenchmark(
  producers: Int,
  workers: Int,
  iterations: Int,
  against baseline: String,
  _ kind: Kind = .file
) -> Benchmark {
  let producer = "\(producers) producer\(producers == 1 ? "" : "s")"
  let name = "\(producer), \(workers) at a time, end to end\(kind.rawValue)"
  return Benchmark(name, against: baseline, iterations: iterations) { count in
    try await withScratchFile { url in
      let store = kind.store(at: url)
      try await performWhileEnqueueing(
        count,
        by: Steadfast(store, workers: workers),
        producers: producers
      )
      try await store.close()
    }
  }
}

/// The rows of a table in SQLite.
///
/// Without these rows, no other row has a ratio to a SQLite table.
private var tableBenchmarks: [Benchmark] {
  #if SQLite
  [
    sqliteBenchmark(sqliteEnqueue, batchSize: 1) { try $0.enqueue($1, now: $2) },
    sqliteBenchmark(sqliteEnqueueBatch, batchSize: 100) { try $0.enqueue($1, now: $2) },
    sqliteBenchmark(sqliteWhole, batchSize: 1) { try $0.enqueueAndPerform($1, now: $2) },
    sqliteBenchmark(sqliteWholeBatch, batchSize: 100) { try $0.enqueueAndPerform($1, now: $2) },
  ]
  #else
  []
  #endif
}

#if SQLite
private func sqliteBenchmark(
  _ name: String,
  batchSize: Int,
  _ body: @escaping @Sendable (SQLite, Range<Int>, Double) throws -> Void
) -> Benchmark {
  Benchmark(name, iterations: batchSize == 1 ? writes : tasks) { count in
    try await withScratchFile { url in
      let database = try SQLite(path: url.path)
      for first in stride(from: 0, to: count, by: batchSize) {
        try body(database, first..<first + batchSize, Date().timeIntervalSince1970)
      }
    }
  }
}

extension SQLite {
  fileprivate func enqueueAndPerform(_ numbers: Range<Int>, now: Double) throws {
    try enqueue(numbers, now: now)
    try perform(numbers.count, now: now)
  }
}
#endif

/// A file that appends lines of 200 bytes, and flushes each line to the disk.
final class AppendedFile {
  private let descriptor: Int32
  private let line = [UInt8](repeating: 65, count: 200)

  init(_ url: URL) throws {
    descriptor = open(url.path, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    guard descriptor >= 0 else { throw Failed() }
  }

  deinit { close(descriptor) }

  func appendLine() throws {
    guard write(descriptor, line, line.count) == line.count, flushToDisk(descriptor) == 0 else {
      throw Failed()
    }
  }
}

private func flushToDisk(_ file: Int32) -> Int32 {
  #if canImport(Darwin)
  fcntl(file, F_FULLFSYNC)
  #else
  fdatasync(file)
  #endif
}

/// Calls `body` with a file in a new temporary folder.
///
/// The variable TMPDIR determines the disk on which the folder is created.
func withScratchFile(_ body: (URL) async throws -> Void) async throws {
  let folder = FileManager.default.temporaryDirectory.appending(path: "bench-\(UUID())")
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: folder) }
  try await body(folder.appending(path: "tasks.jsonl"))
}
