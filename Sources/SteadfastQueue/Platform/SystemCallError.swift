#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// A system call that failed.
package struct SystemCallError: Error, Equatable, CustomStringConvertible {
  package let call: String
  package let number: Int32

  package init(_ call: String, _ number: Int32) {
    self.call = call
    self.number = number
  }

  /// The last failure on this thread.
  static func last(_ call: String) -> SystemCallError { SystemCallError(call, errno) }

  /// A write returned without an error and without having written.
  static var nothingWritten: SystemCallError { SystemCallError("write", EIO) }

  package var description: String {
    let text = unsafe strerror(number).map { unsafe String(cString: $0) } ?? "error \(number)"
    return "\(text) (\(call))"
  }
}
