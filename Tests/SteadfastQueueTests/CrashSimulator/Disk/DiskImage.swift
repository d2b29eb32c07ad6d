@testable import SteadfastQueue

/// The contents of a disk: its files and their names.
struct DiskImage: Sendable {
  /// The bytes of each file, by the file's node, which doesn't change when the file is renamed.
  private(set) var contents: [[UInt8]] = []
  private(set) var names: [JournalFileName: Int] = [:]

  init() {}

  /// Makes a disk that contains only a journal.
  init(journal: [UInt8]) {
    contents = [journal]
    names = [.journal: 0]
  }

  /// The contents of the file with the name.
  func bytes(of name: JournalFileName) -> [UInt8]? { names[name].map { contents[$0] } }

  func size(of node: Int) -> Int { node < contents.count ? contents[node].count : 0 }

  /// A hash of everything that a new process can observe on the disk.
  var fingerprint: UInt64 {
    var hasher = Hasher()
    for name in [JournalFileName.journal, .replacement] {
      guard let node = names[name] else {
        hasher.combine(false)
        continue
      }
      hasher.combine(true)
      hasher.combine(contents[node].count)
      unsafe contents[node].withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
    }
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }

  mutating func apply(_ operation: DiskOperation) {
    switch operation {
    case .create(let name, let node):
      addNodes(for: node)
      names[name] = node
    case .rename(let name, let other, let node):
      addNodes(for: node)
      if names[name] == node { names[name] = nil }
      names[other] = node
    case .remove(let name):
      names[name] = nil
    case .write(let node, let offset, let bytes):
      put(bytes[...], at: offset, in: node)
    case .truncate(let node, let size):
      addNodes(for: node)
      if size < contents[node].count { contents[node].removeLast(contents[node].count - size) }
    case .flush, .failedFlush, .flushFolder:
      break
    }
  }

  mutating func put(_ bytes: ArraySlice<UInt8>, at offset: Int, in node: Int) {
    addNodes(for: node)
    let gap = offset - contents[node].count
    if gap > 0 { contents[node].append(contentsOf: repeatElement(0, count: gap)) }
    let end = min(offset + bytes.count, contents[node].count)
    contents[node].replaceSubrange(offset..<end, with: bytes)
  }

  private mutating func addNodes(for node: Int) {
    while contents.count <= node { contents.append([]) }
  }
}

/// An operation that a process performs on a disk.
enum DiskOperation: Sendable {
  case create(JournalFileName, node: Int)
  case rename(JournalFileName, JournalFileName, node: Int)
  case remove(JournalFileName)
  case write(node: Int, offset: Int, [UInt8])
  case truncate(node: Int, size: Int)
  case flush(node: Int)
  /// A failed flush. The system drops the file's unwritten bytes, but treats them as written.
  case failedFlush(node: Int)
  case flushFolder

  /// The node of the file whose bytes the operation changes.
  var changedNode: Int? {
    switch self {
    case .write(let node, _, _), .truncate(let node, _): node
    case .create, .rename, .remove, .flush, .failedFlush, .flushFolder: nil
    }
  }

  /// Whether the operation changes the names of files.
  var changesNames: Bool {
    switch self {
    case .create, .rename, .remove: true
    case .write, .truncate, .flush, .failedFlush, .flushFolder: false
    }
  }

  var isFlush: Bool {
    switch self {
    case .flush, .flushFolder: true
    case .create, .rename, .remove, .write, .truncate, .failedFlush: false
    }
  }

  /// The operation's name and numbers, without the bytes that it writes.
  var summary: String {
    switch self {
    case .write(let node, let offset, let bytes):
      "write(node: \(node), offset: \(offset), \(bytes.count) bytes)"
    case .create, .rename, .remove, .truncate, .flush, .failedFlush, .flushFolder: "\(self)"
    }
  }
}
