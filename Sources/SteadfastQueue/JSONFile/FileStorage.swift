import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The real file system behind a journal.
///
/// A file is opened only if it is what this code would have made: a regular file, not a link, with
/// one name, that no other user may write.
final class FileStorage: JournalStorage {
  private let path: String
  private let descriptor = Mutex<Int32>(-1)

  init(path: String) { self.path = path }

  deinit { close() }

  /// The temporary file beside the one at a path.
  ///
  /// Whoever holds the lock owns it.
  static func temporaryPath(for path: String) -> String { path + ".new" }

  // MARK: Whole files

  func read() throws(SystemCallError) -> [UInt8]? {
    let file: Int32
    do {
      file = try Self.open(path, O_RDONLY)
    } catch {
      if error.number == ENOENT { return nil }
      throw error
    }
    defer { Self.close(file) }
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Int(status.st_size) + 1)
    var buffer = [UInt8](repeating: 0, count: 1 << 18)
    while true {
      let count = try Self.retryingInterrupted("read") {
        unsafe buffer.withUnsafeMutableBytes { unsafe systemRead(file, $0.baseAddress, $0.count) }
      }
      guard count > 0 else { return bytes }
      bytes.append(contentsOf: buffer[..<count])
    }
  }

  func replace(with bytes: [UInt8]) throws(SystemCallError) {
    let temporary = Self.temporaryPath(for: path)
    guard unsafe unlink(temporary) == 0 || errno == ENOENT else { throw .last("unlink") }
    let file = try Self.open(temporary, O_WRONLY | O_CREAT | O_EXCL)
    do {
      defer { Self.close(file) }
      var rest = bytes[...]
      while !rest.isEmpty { rest = rest.dropFirst(try Self.write(rest, to: file)) }
      try Self.synchronize(file)
    } catch {
      _ = unsafe unlink(temporary)
      throw error
    }
    guard unsafe rename(temporary, path) == 0 else { throw .last("rename") }
    try synchronizeFolder()
  }

  // MARK: The open file

  func open() throws(SystemCallError) {
    let file = try Self.open(path, O_WRONLY | O_APPEND)
    descriptor.withLock { $0 = file }
  }

  func append(_ bytes: ArraySlice<UInt8>) throws(SystemCallError) -> Int {
    try Self.write(bytes, to: descriptor.withLock { $0 })
  }

  func overwrite(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) {
    // A descriptor that appends would append here too, whatever the offset.
    let file = try Self.open(path, O_WRONLY)
    defer { Self.close(file) }
    var done = 0
    while done < bytes.count {
      let rest = bytes.dropFirst(done)
      done += try Self.retryingInterrupted("pwrite") {
        unsafe rest.withUnsafeBytes {
          unsafe pwrite(file, $0.baseAddress, $0.count, off_t(offset + done))
        }
      }
    }
    try Self.synchronize(file)
  }

  func truncate(to size: Int) throws(SystemCallError) {
    _ = try Self.retryingInterrupted("ftruncate") {
      Int(ftruncate(descriptor.withLock { $0 }, off_t(size)))
    }
  }

  func synchronize() throws(SystemCallError) {
    try Self.synchronize(descriptor.withLock { $0 })
  }

  func synchronizeFolder() throws(SystemCallError) {
    let folder = try Self.openDescriptor(Self.folder(of: path), O_RDONLY | O_DIRECTORY)
    defer { Self.close(folder) }
    guard fsync(folder) == 0 else { throw .last("fsync of the folder") }
  }

  func delete() throws(SystemCallError) {
    guard unsafe unlink(path) == 0 || errno == ENOENT else { throw .last("unlink") }
  }

  func close() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    if file >= 0 { Self.close(file) }
  }
}

// MARK: - System calls

extension FileStorage {
  /// Opens a file, made for this user alone if it is to be made, and checks what it is.
  static func open(_ path: String, _ flags: Int32) throws(SystemCallError) -> Int32 {
    let file = try openDescriptor(path, flags | O_NOFOLLOW)
    do {
      try refuseUnsafe(file)
    } catch {
      close(file)
      throw error
    }
    return file
  }

  /// The folder that a path names a file in.
  static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  private static func openDescriptor(
    _ path: String,
    _ flags: Int32
  ) throws(SystemCallError) -> Int32 {
    Int32(
      try retryingInterrupted("open") {
        Int(systemOpen(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(0o600)))
      }
    )
  }

  private static func refuseUnsafe(_ file: Int32) throws(SystemCallError) {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw SystemCallError("it is not a regular file", EINVAL)
    }
    guard status.st_nlink <= 1 else {
      throw SystemCallError("it has more than one name", EMLINK)
    }
    guard status.st_mode & S_IWOTH == 0 else {
      throw SystemCallError("every user may write it", EPERM)
    }
  }

  static func write(
    _ bytes: ArraySlice<UInt8>,
    to file: Int32
  ) throws(SystemCallError) -> Int {
    try retryingInterrupted("write") {
      unsafe bytes.withUnsafeBytes { unsafe systemWrite(file, $0.baseAddress, $0.count) }
    }
  }

  /// Returns when the file's bytes survive a power cut.
  private static func synchronize(_ file: Int32) throws(SystemCallError) {
    #if canImport(Darwin)
    // fsync leaves the bytes in the drive's cache there; not every file system has the other.
    if fcntl(file, F_FULLFSYNC) == 0 { return }
    guard fsync(file) == 0 else { throw .last("fsync") }
    #else
    guard fdatasync(file) == 0 else { throw .last("fdatasync") }
    #endif
  }

  static func close(_ file: Int32) { _ = systemClose(file) }

  static func retryingInterrupted(
    _ call: String,
    _ body: () -> Int
  ) throws(SystemCallError) -> Int {
    while true {
      let result = body()
      if result >= 0 { return result }
      guard errno == EINTR else { throw .last(call) }
    }
  }
}

// The names of these calls are also names of methods above.
private func systemOpen(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemClose(_ file: Int32) -> Int32 { close(file) }
private func systemRead(_ file: Int32, _ buffer: UnsafeMutableRawPointer?, _ count: Int) -> Int {
  unsafe read(file, buffer, count)
}
private func systemWrite(_ file: Int32, _ buffer: UnsafeRawPointer?, _ count: Int) -> Int {
  unsafe write(file, buffer, count)
}
