import SteadfastQueue

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
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

/// Each task survives a power cut before `enqueue` returns, and so does its end.
let fileBenchmarks = [
  Benchmark(bare, iterations: writes) { count in
    try await withScratchFile { url in try appendAndFlush(count, to: url) }
  },
  enqueueBenchmark(producers: 1, iterations: writes),
  enqueueBenchmark(producers: 64, iterations: tasks),
  Benchmark("64 producers, 8 at a time, end to end", against: bare, iterations: tasks) { count in
    try await withScratchFile { url in
      let store = JSONFileStore(at: url)
      try await performOverlapped(count, by: Steadfast(store, workers: 8), producers: 64)
      try await store.close()
    }
  },
]

private func enqueueBenchmark(producers: Int, iterations: Int) -> Benchmark {
  Benchmark("enqueue, \(producers) at a time", against: bare, iterations: iterations) { count in
    try await withScratchFile { url in
      let store = JSONFileStore(at: url)
      try await enqueue(count, to: Steadfast(store, workers: 1).queue, producers: producers)
      try await store.close()
    }
  }
}

private func appendAndFlush(_ count: Int, to url: URL) throws {
  let file = open(url.path, O_WRONLY | O_CREAT | O_APPEND, 0o600)
  guard file >= 0 else { throw Failed() }
  defer { close(file) }
  let line = [UInt8](repeating: 65, count: 200)
  for _ in 0..<count {
    guard write(file, line, line.count) == line.count, flush(file) == 0 else { throw Failed() }
  }
}

private func flush(_ file: Int32) -> Int32 {
  #if canImport(Darwin)
  fcntl(file, F_FULLFSYNC)
  #else
  fdatasync(file)
  #endif
}

/// A file in a new folder beside the temporary ones: TMPDIR chooses the disk.
private func withScratchFile(_ body: (URL) async throws -> Void) async throws {
  let folder = FileManager.default.temporaryDirectory.appending(path: "bench-\(UUID())")
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: folder) }
  try await body(folder.appending(path: "tasks.jsonl"))
}
