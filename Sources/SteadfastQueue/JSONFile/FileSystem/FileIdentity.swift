#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The identity of a file, whatever its name is.
package struct FileIdentity: Hashable, Sendable {
  private let device: UInt64
  private let node: UInt64

  init(_ status: stat) {
    // Darwin's device numbers have a sign.
    device = UInt64(truncatingIfNeeded: status.st_dev)
    node = UInt64(status.st_ino)
  }

  init(ofDescriptor file: Int32) throws(SystemCallError) {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    self.init(status)
  }

  /// Returns the file at a path and its size in bytes, or `nil` if there is none.
  static func lookUp(
    _ path: String
  ) throws(SystemCallError) -> (identity: FileIdentity, size: Int)? {
    let status = try unsafe status(of: path, "lstat") { unsafe lstat($0, $1) }
    guard let status else { return nil }
    return (FileIdentity(status), Int(status.st_size))
  }

  /// Returns the file to which a path leads, through links too, or `nil` if there is none.
  package static func following(_ path: String) throws(SystemCallError) -> FileIdentity? {
    try unsafe status(of: path, "stat") { unsafe stat($0, $1) }.map(FileIdentity.init)
  }

  private static func status(
    of path: String,
    _ name: String,
    _ call: (UnsafePointer<CChar>, UnsafeMutablePointer<stat>) -> Int32
  ) throws(SystemCallError) -> stat? {
    var status = stat()
    guard unsafe call(path, &status) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw .last(name)
    }
    return status
  }
}
