/// The size of each file that was known to be durable when the last line was appended.
///
/// A reader must be able to distinguish damage in the durable bytes from an incomplete write. The
/// size is computed from the disk's operations, not read from the lines.
struct DurableLines {
  private struct File {
    /// The size of the file's lines, in bytes.
    var size = 0
    var flushedSize = 0
    /// The size that was durable before the last flush started.
    ///
    /// A line that is written during a flush can't mark the bytes of that flush as durable yet.
    var knownSize = 0
    /// The offsets of the appended lines, and the size that was known to be durable at each.
    var appends: [(offset: Int, durable: Int)] = []
  }

  private var files: [Int: File] = [:]

  mutating func perform(_ operation: DiskOperation) {
    guard let node = operation.changedNode ?? operation.flushedNode else { return }
    var file = files[node] ?? File()
    switch operation {
    case .write(_, let offset, let bytes):
      // Zeros are reserved space, not lines. Later lines overwrite them.
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

  /// The number of bytes that the file's last line must mark as durable.
  func size(of node: Int) -> Int { files[node]?.appends.last?.durable ?? 0 }
}

extension DiskOperation {
  fileprivate var flushedNode: Int? {
    if case .flush(let node) = self { node } else { nil }
  }
}
