#if SQLite
import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A file as the system knows it, whatever its name is.
struct SystemFile: Equatable {
  private let device: UInt64
  private let node: UInt64

  /// Returns the file to which a path leads; `nil` if there is none.
  static func at(_ path: String) throws(SystemCallError) -> SystemFile? {
    var status = stat()
    guard unsafe stat(path, &status) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw .last("stat")
    }
    // Darwin's device numbers have a sign.
    return SystemFile(
      device: UInt64(truncatingIfNeeded: status.st_dev),
      node: UInt64(status.st_ino)
    )
  }
}
#endif
