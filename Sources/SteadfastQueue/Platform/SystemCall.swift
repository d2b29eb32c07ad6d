#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// System calls that a signal may interrupt, or that each platform has in its own way.
enum SystemCall {
  /// Makes a call again for as long as a signal interrupts it.
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

  // MARK: Flushes

  /// Flushes the bytes of a file, with what is needed to read them.
  static func flushBytes(of file: Int32) throws(SystemCallError) {
    #if canImport(Darwin)
    try flush(file, "fsync")
    #else
    _ = try retryingInterrupted("fdatasync") { Int(fdatasync(file)) }
    #endif
  }

  /// Flushes a file, or a folder and with it the names of its files.
  static func flush(_ file: Int32, _ call: String) throws(SystemCallError) {
    #if canImport(Darwin)
    // On Darwin, `fsync` leaves the bytes in the drive's cache, but not every file system supports
    // `F_FULLFSYNC`. After an error of the disk, `fsync` might succeed though nothing was stored.
    do {
      _ = try retryingInterrupted("fcntl(F_FULLFSYNC)") { Int(fcntl(file, F_FULLFSYNC)) }
      return
    } catch  where [ENOTSUP, EINVAL, ENOTTY].contains(error.number) {}
    #endif
    _ = try retryingInterrupted(call) { Int(fsync(file)) }
  }

  // MARK: Protection

  /// Returns the number of a file's protection class, or `nil` if it has none.
  ///
  /// A Mac and the simulator have no protection classes, or none that has an effect. Not every file
  /// system of a device has them: an external one may not, for example.
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

  /// Gives a file a protection class, if it has one, and if its file system can give it another.
  static func protect(_ file: Int32, _ number: Int32) throws(SystemCallError) {
    #if canImport(Darwin)
    guard let present = protectionClass(of: file), present != number,
      fcntl(file, F_SETPROTECTIONCLASS, number) != 0
    else { return }
    guard errno == ENOTSUP else { throw .last("fcntl(F_SETPROTECTIONCLASS)") }
    #endif
  }

  // MARK: Limits

  /// Whether the process has a limit for the size of its files, whose signal goes to one thread.
  ///
  /// On Darwin, the signal goes to the process, whatever thread writes.
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
    // No limit is the greatest unsigned number.
    return result != 0 || UInt64(limit.rlim_cur) <= UInt64(Int64.max)
    #endif
  }
}
