import Dispatch
import Synchronization

extension JournalReader {
  /// The size of a part, in bytes; a file that is not longer is read by one thread.
  static var partSize: Int { 64 << 10 }
  /// How many parts are read while as many are taken in.
  ///
  /// This limits how much of a file is in memory at a time.
  private static var partsAtOnce: Int { 64 }

  static func read(_ bytes: [UInt8]) throws(JournalProblem) -> JournalContents {
    try read(JournalSource(bytes))
  }

  static func read(
    _ source: JournalSource,
    partSize: Int = partSize
  ) throws(JournalProblem) -> JournalContents {
    var contents = try readAsWritten(source, partSize: partSize)
    contents.interruptionCount = contents.table.interruptLeased()
    return contents
  }

  /// Does what `read(_:)` does, but leaves tasks running whose attempts have begun and not ended.
  static func readAsWritten(
    _ source: JournalSource,
    partSize: Int = partSize
  ) throws(JournalProblem) -> JournalContents {
    let reader = Mutex(JournalReader(source))
    var start = 0
    repeat {
      let end = min(source.count, start + partsAtOnce * partSize)
      let ranges = stride(from: start, to: end, by: partSize).map { $0..<min(end, $0 + partSize) }
      let parts = JournalChunk.read(ranges, of: source) { reader.withLock { $0.takeIn() } }
      reader.withLock { $0.add(parts) }
      start = end
    } while !reader.withLock(\.isDone)
    return try reader.withLock { reader throws(JournalProblem) in try reader.end() }
  }
}

extension JournalChunk {
  /// Reads parts of a file while `body` is performed, which is called once.
  fileprivate static func read(
    _ ranges: [Range<Int>],
    of source: JournalSource,
    during body: @Sendable () -> Void
  ) -> [JournalChunk] {
    guard ranges.count > 1 else {
      body()
      return ranges.map { JournalChunk(of: source, linesBeginningIn: $0) }
    }
    let parts = Mutex([JournalChunk?](repeating: nil, count: ranges.count))
    // Nothing here waits for another thread: if none is free, this thread does all the work.
    DispatchQueue.concurrentPerform(iterations: 1 + ranges.count) { index in
      guard index > 0 else { return body() }
      let part = JournalChunk(of: source, linesBeginningIn: ranges[index - 1])
      parts.withLock { $0[index - 1] = part }
    }
    return parts.withLock { $0.compactMap(\.self) }
  }
}
