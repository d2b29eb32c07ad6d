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

/// A disk in memory that records every operation.
///
/// The effects of a power cut are derived from the operations afterwards. A test can also plan
/// failures of calls.
final class SimulatedDisk: JournalStorage {
  /// The way in which a call fails.
  enum Fault: Hashable {
    case error(Int32)
    /// A write fails after half of its bytes; any other call just fails.
    case half(Int32)
    /// A write writes a third of its bytes, and returns their number; any other call succeeds.
    case short
  }

  struct State {
    /// What a process reads: everything that was written, durable or not.
    var image: DiskImage
    var nodeCount: Int
    var log: [DiskOperation] = []
    /// The calls that were made, by name.
    var calls: [String] = []
    var faults: [Int: Fault] = [:]
    /// The number of operations before the first fault.
    var faultMoment: Int?
  }

  let state: Mutex<State>

  init(_ image: DiskImage = DiskImage()) {
    state = Mutex(State(image: image, nodeCount: image.contents.count))
  }

  var image: DiskImage { state.withLock { $0.image } }
  var log: [DiskOperation] { state.withLock { $0.log } }
  var calls: [String] { state.withLock { $0.calls } }
  var faultMoment: Int? { state.withLock { $0.faultMoment } }

  /// Plans a failure of the call with this number.
  func plan(_ fault: Fault, atCall number: Int) {
    state.withLock { $0.faults[number] = fault }
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    try opening("open") { state in state.image.names[name] }.map { SimulatedFile(self, $0) }
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    let node = try opening("create") { state -> Int? in
      guard state.image.names[name] == nil else { return nil }
      state.nodeCount += 1
      state.perform(.create(name, node: state.nodeCount - 1))
      return state.nodeCount - 1
    }
    guard let node else { throw .systemCall(SystemCallError("create", EEXIST)) }
    return SimulatedFile(self, node)
  }

  private func opening<Result>(
    _ name: String,
    _ body: (inout State) -> Result
  ) throws(FileOpeningError) -> Result {
    do {
      return try call(name, body)
    } catch {
      throw .systemCall(error)
    }
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    try call("rename") { state in
      guard let node = state.image.names[name] else { return }
      state.perform(.rename(name, other, node: node))
    }
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    try call("remove") { state in
      if state.image.names[name] != nil { state.perform(.remove(name)) }
    }
  }

  func openFolder() throws(SystemCallError) { try call("openFolder") { _ in } }

  func synchronizeFolder() throws(SystemCallError) {
    try call("synchronizeFolder") { $0.perform(.flushFolder) }
  }

  /// Counts and makes a call, which fails if a fault is planned for it.
  fileprivate func call<Result>(
    _ name: String,
    onFault: (inout State, Fault) -> Void = { _, _ in },
    _ body: (inout State) -> Result
  ) throws(SystemCallError) -> Result {
    let result = state.withLock { state -> Swift.Result<Result, SystemCallError> in
      state.calls.append(name)
      guard let fault = state.faults[state.calls.count] else { return .success(body(&state)) }
      state.faultMoment = state.faultMoment ?? state.log.count
      switch fault {
      case .short: return .success(body(&state))
      case .error(let number), .half(let number):
        onFault(&state, fault)
        return .failure(SystemCallError(name, number))
      }
    }
    return try result.get()
  }
}

extension SimulatedDisk.State {
  mutating func perform(_ operation: DiskOperation) {
    image.apply(operation)
    log.append(operation)
  }
}

private final class SimulatedFile: JournalFile {
  private let disk: SimulatedDisk
  private let node: Int
  private let isClosed = Mutex(false)

  init(_ disk: SimulatedDisk, _ node: Int) {
    self.disk = disk
    self.node = node
  }

  func size() throws(SystemCallError) -> Int {
    try disk.call("size") { $0.image.size(of: node) }
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try disk.call("read") { state in
      let bytes = state.image.contents[node]
      guard offset > 0 || count < bytes.count else { return bytes }
      return Array(bytes.dropFirst(offset).prefix(count))
    }
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    try disk.call("write") { state, fault in
      guard case .half = fault, bytes.count > 1 else { return }
      state.perform(.write(node: node, offset: offset, Array(bytes.prefix(bytes.count / 2))))
    } _: { state in
      let isShort = state.faults[state.calls.count] == .short
      let part = isShort ? bytes.prefix(max(1, bytes.count / 3)) : bytes
      state.perform(.write(node: node, offset: offset, Array(part)))
      return part.count
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    try disk.call("truncate") { $0.perform(.truncate(node: node, size: size)) }
  }

  func synchronize() throws(SystemCallError) {
    guard !isClosed.withLock({ $0 }) else { throw SystemCallError("synchronize", EBADF) }
    try disk.call("synchronize") { state, _ in
      state.perform(.failedFlush(node: node))
    } _: { state in
      state.perform(.flush(node: node))
    }
  }

  func close() { isClosed.withLock { $0 = true } }
}
