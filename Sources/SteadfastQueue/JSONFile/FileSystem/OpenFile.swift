import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A file of the real file system.
final class OpenFile: JournalFile {
  /// How many bytes are read or written at once: Darwin refuses more.
  private static let mostBytes = Int(Int32.max)

  private let descriptor: Mutex<Int32>
  private let forkCount = ForkCount.current
  private let options: JSONFileStore.Options
  let hasOtherNames: Bool

  init(_ file: Int32, _ options: JSONFileStore.Options, hasOtherNames: Bool) {
    descriptor = Mutex(file)
    self.options = options
    self.hasOtherNames = hasOtherNames
  }

  deinit { close() }

  /// Gives a new file the chosen permissions, and the owner and the group of another file, if there
  /// is one.
  func protectNew(like other: FileIdentity?, at path: String) throws(SystemCallError) {
    guard let other else { return try protect() }
    try FileStorage.protectNew(descriptor.withLock { $0 }, like: other, at: path, options)
  }

  func size() throws(SystemCallError) -> Int {
    var status = stat()
    guard unsafe fstat(descriptor.withLock { $0 }, &status) == 0 else { throw .last("fstat") }
    return Int(status.st_size)
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    let file = descriptor.withLock { $0 }
    var failure: SystemCallError?
    // The buffer needs no initial bytes: only those that were read count.
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, done in
      guard let start = buffer.baseAddress else { return }
      do throws(SystemCallError) {
        while done < count {
          let size = min(count - done, Self.mostBytes)
          let part = try SystemCall.retryingInterrupted("read") {
            unsafe pread(file, start.advanced(by: done), size, off_t(offset + done))
          }
          guard part > 0 else { break }
          done += part
        }
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return bytes
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    let file = descriptor.withLock { $0 }
    return try SystemCall.retryingInterrupted("write") {
      unsafe bytes.withUnsafeBytes { bytes in
        guard let start = bytes.baseAddress else { return 0 }
        return unsafe pwrite(file, start, min(bytes.count, Self.mostBytes), off_t(offset))
      }
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    let file = descriptor.withLock { $0 }
    _ = try SystemCall.retryingInterrupted("ftruncate") { Int(ftruncate(file, off_t(size))) }
  }

  /// Flushes the file, and repeats a flush that a signal has interrupted, as nothing was lost.
  ///
  /// A flush that failed with any other error is not repeated: the system may have dropped what it
  /// could not write.
  func synchronize() throws(SystemCallError) {
    try SystemCall.flushBytes(of: descriptor.withLock { $0 })
  }

  /// Gives the file the chosen permissions, unless it has other names: then it stays as it is.
  func protect() throws(SystemCallError) {
    guard !hasOtherNames else { return }
    try FileStorage.protect(descriptor.withLock { $0 }, options)
  }

  func close() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    if file >= 0 { FileStorage.unlockAndClose(file, forkCount) }
  }
}
