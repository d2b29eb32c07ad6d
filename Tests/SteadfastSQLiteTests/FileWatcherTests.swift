#if SQLite && os(Linux)
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

struct FileWatcherTests {
  private func append(_ text: String, to url: URL) throws {
    let file = try FileHandle(forWritingTo: url)
    try file.seekToEnd()
    try file.write(contentsOf: Data(text.utf8))
    try file.close()
  }

  @Test(.timeLimit(.minutes(5)))
  func `a file watcher reports writes, even to a file that was created after the watcher`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db-wal")
      // A macro can't take the watcher, which is not copyable.
      let watcher = FileWatcher()
      func startsWatching() -> Bool { watcher.watchFile(at: url.path) }
      let found = watcher.descriptor
      let descriptor = try #require(found)
      let stop = try StopSignal()
      #expect(!startsWatching())
      for text in ["first", "second"] {
        try Data().write(to: url)
        #expect(startsWatching())
        // Neither earlier writes nor the second call of `watchFile(at:)` are reported.
        watcher.clear()
        #expect(startsWatching())
        #expect(try stop.wait(for: descriptor, milliseconds: 0) == .nothing)
        try append(text, to: url)
        #expect(try stop.wait(for: descriptor, milliseconds: -1) == .input)
        watcher.clear()
        #expect(try stop.wait(for: descriptor, milliseconds: 0) == .nothing)
        try FileManager.default.removeItem(at: url)
        // The removal of the file is reported as well.
        #expect(try stop.wait(for: descriptor, milliseconds: -1) == .input)
        watcher.clear()
        #expect(!startsWatching())
      }
    }
  }

  /// Finishes the stream when the last reference to this object is released.
  private final class Held: Sendable {
    let checks: AsyncStream<Void>.Continuation

    init(_ checks: AsyncStream<Void>.Continuation) { self.checks = checks }

    deinit { checks.finish() }
  }

  @Test(.timeLimit(.minutes(5)))
  func `the watching thread keeps checking until it is stopped, even if there is no log`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let (checks, continuation) = AsyncStream<Void>.makeStream()
      let path = folder.appending(path: "db-wal").path
      let stop = try {
        let held = Held(continuation)
        return try DatabaseWatcher.start(watchingLogAt: path, intervalWithoutFile: .milliseconds(1))
        {
          _ = held.checks.yield()
        }
      }()
      var iterator = checks.makeAsyncIterator()
      for _ in 0..<5 { #expect(await iterator.next() != nil) }
      stop.stop()
      // Returns when the thread has ended and released its closure.
      while await iterator.next() != nil {}
    }
  }
}
#endif
