import Synchronization
import SystemC

/// System calls that a signal may interrupt, or that differ between platforms.
enum SystemCall {
  /// Repeats a call as long as signals interrupt it.
  static func repeatingWhileInterrupted(
    _ call: String,
    _ body: () -> Int
  ) throws(SystemCallError) -> Int {
    while true {
      let result = body()
      if result >= 0 { return result }
      guard errno == EINTR else { throw .last(call) }
    }
  }

  // MARK: Flushes

  /// Flushes the contents of a file, and the metadata that is needed to read them.
  static func flushBytes(of file: Int32) throws(SystemCallError) {
    #if canImport(Darwin)
    try flush(file, reportedAs: "fsync")
    #else
    _ = try repeatingWhileInterrupted("fdatasync") { Int(fdatasync(file)) }
    #endif
  }

  /// Flushes a file, or the names of the files in a folder.
  static func flush(_ file: Int32, reportedAs call: String) throws(SystemCallError) {
    #if canImport(Darwin)
    // On Darwin, `fsync` leaves the bytes in the drive's cache. `F_FULLFSYNC` does not, but some
    // file systems don't support it: only then is `fsync` used. After a disk error, `fsync` might
    // succeed although nothing was stored.
    do {
      _ = try repeatingWhileInterrupted("fcntl(F_FULLFSYNC)") { Int(fcntl(file, F_FULLFSYNC)) }
      return
    } catch  where [ENOTSUP, EINVAL, ENOTTY].contains(error.number) {}
    #endif
    _ = try repeatingWhileInterrupted(call) { Int(fsync(file)) }
  }

  // MARK: Protection

  /// Returns the number of a file's data protection class, or `nil` if the file has none.
  ///
  /// A Mac and the simulator have no effective protection classes. Some file systems of a device,
  /// such as external ones, have none either.
  static func protectionClass(of file: Int32) -> Int32? {
    #if os(macOS) || targetEnvironment(macCatalyst) || targetEnvironment(simulator)
    return nil
    #elseif canImport(Darwin)
    let number = fcntl(file, F_GETPROTECTIONCLASS)
    return number > 0 ? number : nil
    #else
    return nil
    #endif
  }

  /// Sets a file's data protection class, if the file has one and its file system can change it.
  static func setProtectionClass(of file: Int32, to number: Int32) throws(SystemCallError) {
    #if canImport(Darwin)
    guard let current = protectionClass(of: file), current != number,
      fcntl(file, F_SETPROTECTIONCLASS, number) != 0
    else { return }
    guard errno == ENOTSUP else { throw .last("fcntl(F_SETPROTECTIONCLASS)") }
    #endif
  }

  // MARK: Limits

  /// Whether the process has a file size limit, and exceeding it sends a signal to the writing
  /// thread.
  ///
  /// On Darwin, the signal always goes to the process.
  static var limitsFileSizes: Bool {
    #if canImport(Darwin)
    return false
    #else
    var limit = rlimit()
    #if canImport(Glibc)
    let result = unsafe getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
    #else
    let result = unsafe getrlimit(RLIMIT_FSIZE, &limit)
    #endif
    // The greatest unsigned value means that there is no limit.
    return result != 0 || UInt64(limit.rlim_cur) <= UInt64(Int64.max)
    #endif
  }
}

/// A system call that failed.
package struct SystemCallError: Error, Equatable, CustomStringConvertible {
  package let call: String
  package let number: Int32

  package init(_ call: String, _ number: Int32) {
    self.call = call
    self.number = number
  }

  /// The error of the last system call that failed on this thread.
  package static func last(_ call: String) -> SystemCallError { SystemCallError(call, errno) }

  /// The error of a write that returned without an error, but wrote nothing.
  package static var nothingWritten: SystemCallError { SystemCallError("write", EIO) }

  package var description: String {
    // Only some C libraries declare that the result is never null.
    let text: UnsafeMutablePointer<CChar>? = unsafe strerror(number)
    return "\(unsafe text.map { unsafe String(cString: $0) } ?? "error \(number)") (\(call))"
  }
}

/// Messages to the people who run a program, about problems that no call can report as an error.
enum StandardError {
  /// The maximum length of a line, in bytes.
  ///
  /// A pipe that accepts any bytes accepts a line of this length at once (POSIX): 4,096 bytes on
  /// Linux, 512 on Darwin.
  static let maxLength = Int(PIPE_BUF)

  /// Writes a line; if that fails, or would block, the message is lost.
  ///
  /// A reader that is slow, or has closed the pipe, must not block a store.
  static func write(_ message: String) { _ = write(message, to: STDERR_FILENO) }

  /// - Returns: Whether the line was written.
  static func write(_ message: String, to file: Int32) -> Bool {
    var line = Array("Steadfast: \(message)".utf8)
    if line.count >= maxLength {
      line.removeSubrange((maxLength - 4)...)
      // An incomplete character at the end would be unreadable.
      while let last = line.last, last & 0xC0 == 0x80 { line.removeLast() }
      if let last = line.last, last >= 0xC0 { line.removeLast() }
      line += "…".utf8
    }
    line.append(UInt8(ascii: "\n"))
    guard canWriteWithoutBlocking(to: file) else { return false }
    return systemWrite(file, line) == line.count
  }

  /// Returns whether a write would neither block nor raise a signal.
  private static func canWriteWithoutBlocking(to file: Int32) -> Bool {
    var status = pollfd(fd: file, events: Int16(POLLOUT), revents: 0)
    // Darwin's `poll` reports `POLLNVAL` for devices that it doesn't support; the write then
    // succeeds or fails by itself.
    return unsafe poll(&status, 1, 0) == 1 && status.revents & Int16(POLLERR | POLLHUP) == 0
  }
}

// The method `write` above hides the system call `write`, so this function makes the call.
private func systemWrite(_ file: Int32, _ bytes: [UInt8]) -> Int {
  unsafe write(file, bytes, bytes.count)
}

/// Distinguishes a forked child process, which runs no new program, from its parent process.
///
/// The child has a copy of everything that its parent had open, but only one of its threads. A
/// check reads one number, while asking for the process ID could take a system call.
package enum ForkCount {
  private static let count = Atomic<Int>(0)

  private static let isCounted: Bool = {
    // The number is initialized before any fork, so that the child can read it.
    _ = count.load(ordering: .relaxed)
    return pthread_atfork(nil, nil, { ForkCount.count.add(1, ordering: .relaxed) }) == 0
  }()

  /// A number that stays the same within a process, and differs in its forked children.
  package static var current: Int {
    isCounted ? count.load(ordering: .relaxed) : Int(getpid())
  }
}

/// The host's name without its domain; "?" if it is not known.
let hostName: String = {
  // POSIX allows names of up to 255 bytes.
  var bytes = [CChar](repeating: 0, count: 256)
  guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "?" }
  let name = bytes.prefix { $0 != 0 && $0 != CChar(UInt8(ascii: ".")) }
  return String(decoding: name.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}()
