#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

extension FileStorage {
  /// Returns the options that leave a file as it is, or `nil` if there is no file.
  ///
  /// It waits for no lock. The lock file tells which process has the lock.
  static func options(ofFileAt path: String) throws(FileOpeningError) -> JSONFileStore.Options? {
    let file: Int32
    do {
      file = try openAsItIs(path, O_RDONLY).descriptor
    } catch .systemCall(let error) where error.number == ENOENT {
      return nil
    }
    defer { close(file) }
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    var options = JSONFileStore.Options()
    options.permissions = JSONFileStore.Permissions(mode: UInt16(status.st_mode & 0o777))
    #if (os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)) && !targetEnvironment(simulator)
    let number = fcntl(file, F_GETPROTECTIONCLASS)
    if number > 0 { options.protection = JSONFileStore.Protection(number: number) }
    #endif
    return options
  }
}
