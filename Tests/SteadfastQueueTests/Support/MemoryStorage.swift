import Synchronization

@testable import SteadfastQueue

/// A storage in memory that fails when told to, and notes what it was asked.
final class MemoryStorage: JournalStorage {
  enum Call: Equatable {
    case read, replace, open, append, overwrite(at: Int), truncate(to: Int), synchronize
    case synchronizeFolder, delete, close
  }

  struct State {
    var bytes: [UInt8]?
    var calls: [Call] = []
    var longestAppend = Int.max
    var failures: [(call: Call, number: Int32)] = []
  }

  let state: Mutex<State>

  init(_ bytes: [UInt8]? = nil) { state = Mutex(State(bytes: bytes)) }

  var bytes: [UInt8] { state.withLock { $0.bytes ?? [] } }
  var calls: [Call] { state.withLock { $0.calls } }

  /// The next such call fails once, with this error.
  func fail(_ call: Call, _ number: Int32) {
    state.withLock { $0.failures.append((call, number)) }
  }

  private func note(_ call: Call) throws(SystemCallError) {
    let failure = state.withLock { state -> Int32? in
      state.calls.append(call)
      guard let index = state.failures.firstIndex(where: { $0.call == call }) else { return nil }
      return state.failures.remove(at: index).number
    }
    if let failure { throw SystemCallError("\(call)", failure) }
  }

  func read() throws(SystemCallError) -> [UInt8]? {
    try note(.read)
    return state.withLock { $0.bytes }
  }

  func replace(with bytes: [UInt8]) throws(SystemCallError) {
    try note(.replace)
    state.withLock { $0.bytes = bytes }
  }

  func open() throws(SystemCallError) { try note(.open) }

  /// A failing append has written half.
  func append(_ bytes: ArraySlice<UInt8>) throws(SystemCallError) -> Int {
    let longest = state.withLock { $0.longestAppend }
    let part = bytes.prefix(longest)
    do {
      try note(.append)
    } catch {
      state.withLock { $0.bytes?.append(contentsOf: part.prefix(part.count / 2)) }
      throw error
    }
    state.withLock { $0.bytes?.append(contentsOf: part) }
    return part.count
  }

  func overwrite(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) {
    try note(.overwrite(at: offset))
    state.withLock { $0.bytes?.replaceSubrange(offset..<offset + bytes.count, with: bytes) }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    try note(.truncate(to: size))
    state.withLock { state in state.bytes = state.bytes.map { Array($0.prefix(size)) } }
  }

  func synchronize() throws(SystemCallError) { try note(.synchronize) }
  func synchronizeFolder() throws(SystemCallError) { try note(.synchronizeFolder) }
  func delete() throws(SystemCallError) {
    try note(.delete)
    state.withLock { $0.bytes = nil }
  }

  func close() { state.withLock { $0.calls.append(.close) } }
}
