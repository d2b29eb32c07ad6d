#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
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
    if let number = SystemCall.protectionClass(of: file) {
      options.protection = JSONFileStore.Protection(number: number)
    }
    return options
  }
}
