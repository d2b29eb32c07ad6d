import Synchronization

@testable import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A storage in memory that records its calls and can inject failures.
final class MemoryStorage: JournalStorage {
  enum Call: Equatable {
    case open(JournalFileName), create(JournalFileName), remove(JournalFileName)
    case rename(JournalFileName, JournalFileName), openFolder, synchronizeFolder
    case read, append, overwrite(at: Int), truncate(to: Int), synchronize, close
  }

  struct State {
    /// The contents of the files.
    ///
    /// `names` contains the index of each file.
    var files: [[UInt8]] = []
    var names: [JournalFileName: Int] = [:]
    var calls: [Call] = []
    var longestWrite = Int.max
    var longestWritten = 0
    var failures: [(call: Call, number: Int32, passed: Int)] = []
    var observer: (@Sendable (Call) -> Void)?
    var isSizeLimited = false
  }

  let state: Mutex<State>

  init(_ bytes: [UInt8]? = nil) {
    var initial = State()
    if let bytes {
      initial.files = [bytes]
      initial.names = [.journal: 0]
    }
    state = Mutex(initial)
  }

  /// The size of the longest write, in bytes.
  var longestWritten: Int { state.withLock { $0.longestWritten } }

  /// Adds a file with a name.
  func put(_ bytes: [UInt8], as name: JournalFileName) {
    state.withLock { state in
      state.files.append(bytes)
      state.names[name] = state.files.count - 1
    }
  }

  /// The contents of the journal.
  var bytes: [UInt8] { bytes(of: .journal) ?? [] }
  var calls: [Call] { state.withLock { $0.calls } }

  func bytes(of name: JournalFileName) -> [UInt8]? {
    state.withLock { state in state.names[name].map { state.files[$0] } }
  }

  /// Makes one call of this kind fail with an error number, after `count` such calls succeed.
  func fail(_ call: Call, _ number: Int32, after count: Int = 0) {
    state.withLock { $0.failures.append((call, number, count)) }
  }

  var isSizeLimited: Bool { state.withLock { $0.isSizeLimited } }

  /// Simulates a limit of the system on the size of files.
  ///
  /// A write beyond the limit may end the process.
  func limitSizes() { state.withLock { $0.isSizeLimited = true } }

  /// Sets a closure to run before each call.
  func onCall(_ body: @escaping @Sendable (Call) -> Void) {
    state.withLock { $0.observer = body }
  }

  fileprivate func note(_ call: Call) throws(SystemCallError) {
    state.withLock { $0.observer }?(call)
    let failure = state.withLock { state -> Int32? in
      state.calls.append(call)
      guard let index = state.failures.firstIndex(where: { $0.call == call }) else { return nil }
      state.failures[index].passed -= 1
      guard state.failures[index].passed < 0 else { return nil }
      return state.failures.remove(at: index).number
    }
    if let failure { throw SystemCallError("\(call)", failure) }
  }

  private func recordOpening(_ call: Call) throws(FileOpeningError) {
    do { try note(call) } catch { throw .systemCall(error) }
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    try recordOpening(.open(name))
    return state.withLock { $0.names[name] }.map { MemoryFile(self, $0) }
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    try recordOpening(.create(name))
    guard bytes(of: name) == nil else { throw .systemCall(SystemCallError("create", EEXIST)) }
    let node = state.withLock { state in
      state.files.append([])
      state.names[name] = state.files.count - 1
      return state.files.count - 1
    }
    return MemoryFile(self, node)
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    try note(.rename(name, other))
    state.withLock { $0.names[other] = $0.names.removeValue(forKey: name) }
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    try note(.remove(name))
    state.withLock { $0.names[name] = nil }
  }

  func openFolder() throws(SystemCallError) { try note(.openFolder) }

  func synchronizeFolder() throws(SystemCallError) { try note(.synchronizeFolder) }
}

private final class MemoryFile: JournalFile {
  private let storage: MemoryStorage
  private let node: Int
  private let isClosed = Mutex(false)

  init(_ storage: MemoryStorage, _ node: Int) {
    self.storage = storage
    self.node = node
  }

  private var bytes: [UInt8] {
    get { storage.state.withLock { $0.files[node] } }
    set { storage.state.withLock { $0.files[node] = newValue } }
  }

  func size() -> Int { bytes.count }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try storage.note(.read)
    return Array(bytes.dropFirst(offset).prefix(count))
  }

  /// Writes some bytes; a write that fails writes half of them.
  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    let part = storage.state.withLock { state in
      state.longestWritten = max(state.longestWritten, bytes.count)
      return bytes.prefix(state.longestWrite)
    }
    do {
      try storage.note(offset == self.bytes.count ? .append : .overwrite(at: offset))
    } catch {
      put(part.prefix(part.count / 2), at: offset)
      throw error
    }
    put(part, at: offset)
    return part.count
  }

  private func put(_ part: ArraySlice<UInt8>, at offset: Int) {
    storage.state.withLock { state in
      let end = min(offset + part.count, state.files[node].count)
      state.files[node].replaceSubrange(offset..<end, with: part)
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    try storage.note(.truncate(to: size))
    bytes = Array(bytes.prefix(size))
  }

  func synchronize() throws(SystemCallError) {
    guard !isClosed.withLock({ $0 }) else { throw SystemCallError("synchronize", EBADF) }
    try storage.note(.synchronize)
  }

  func close() {
    storage.state.withLock { $0.observer }?(.close)
    isClosed.withLock { $0 = true }
    storage.state.withLock { $0.calls.append(.close) }
  }
}
