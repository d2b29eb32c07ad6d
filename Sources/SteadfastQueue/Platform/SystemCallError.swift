#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

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
    // Only some of the C libraries say that it is never null.
    let text: UnsafeMutablePointer<CChar>? = unsafe strerror(number)
    return "\(unsafe text.map { unsafe String(cString: $0) } ?? "error \(number)") (\(call))"
  }
}
