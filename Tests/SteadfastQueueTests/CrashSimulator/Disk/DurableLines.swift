/// How much of each file was known to be durable when its last line was appended.
///
/// A reader must be able to tell damage in that part from a torn write. The size follows from the
/// operations of the disk, not from what the lines say.
struct DurableLines {
  private struct File {
    /// The size of the lines.
    var size = 0
    var flushedSize = 0
    /// The size that was flushed before the last flush.
    ///
    /// A line that is written during a flush can't know yet what that flush makes durable.
    var knownSize = 0
    /// The offsets of the appending writes, and the size that was known to be durable at each.
    var appends: [(offset: Int, durable: Int)] = []
  }

  private var files: [Int: File] = [:]

  mutating func perform(_ operation: DiskOperation) {
    guard let node = operation.changedNode ?? operation.flushedNode else { return }
    var file = files[node] ?? File()
    switch operation {
    case .write(_, let offset, let bytes):
      // Zeros reserve space: they aren't lines, and lines replace them.
      guard bytes.contains(where: { $0 != 0 }) else { break }
      if offset >= file.size { file.appends.append((offset, file.knownSize)) }
      file.size = max(file.size, offset + bytes.count)
    case .truncate(_, let size):
      file.appends.removeAll { $0.offset >= size }
      file.size = min(file.size, size)
      file.flushedSize = min(file.flushedSize, size)
      file.knownSize = min(file.knownSize, size)
    case .flush:
      file.knownSize = file.flushedSize
      file.flushedSize = file.size
    case .create, .rename, .remove, .failedFlush, .flushFolder:
      break
    }
    files[node] = file
  }

  /// The number of bytes of a file that its last line must mark as durable.
  func size(of node: Int) -> Int { files[node]?.appends.last?.durable ?? 0 }
}

extension DiskOperation {
  fileprivate var flushedNode: Int? {
    if case .flush(let node) = self { node } else { nil }
  }
}
