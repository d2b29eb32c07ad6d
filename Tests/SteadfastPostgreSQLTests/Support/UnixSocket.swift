#if PostgreSQL
import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Sockets in the file system whose writers get an error, not a signal, after the reader has
/// disconnected.
enum UnixSocket {
  /// Creates a socket, calls `body` with the socket and the address of a path, and returns the
  /// socket.
  ///
  /// - Throws: An error if `body` returns `false`.
  static func make(
    at path: String,
    _ body: (Int32, UnsafePointer<sockaddr>) -> Bool
  ) throws -> Int32 {
    #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue)
    #else
    let type = SOCK_STREAM
    #endif
    let descriptor = socket(AF_UNIX, type, 0)
    refuseSignals(descriptor)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bytes = Array(path.utf8) + [0]
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }
    let isDone = unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
        unsafe body(descriptor, pointer)
      }
    }
    guard isDone else { throw CocoaError(.fileNoSuchFile) }
    return descriptor
  }

  /// Waits for a client.
  ///
  /// Returns a negative number if the listener was shut down.
  static func nextClient(of listener: Int32) -> Int32 {
    while true {
      let client = accept(listener, nil, nil)
      // Read it at once: what the condition below calls may change it.
      let error = errno
      // While other tests run, a signal may interrupt the call, or too many files may be open.
      guard client < 0, [EINTR, EMFILE, ENFILE, ENOMEM].contains(error) else {
        refuseSignals(client)
        return client
      }
      sched_yield()
    }
  }

  static func write(_ bytes: [UInt8], count: Int, to descriptor: Int32) {
    #if canImport(Glibc)
    _ = unsafe send(descriptor, bytes, count, Int32(MSG_NOSIGNAL))
    #else
    _ = unsafe send(descriptor, bytes, count, 0)
    #endif
  }

  /// Disables the signal on Darwin, where it is an option of the socket.
  private static func refuseSignals(_ descriptor: Int32) {
    #if canImport(Darwin)
    var yes: Int32 = 1
    let size = socklen_t(MemoryLayout<Int32>.size)
    _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &yes, size)
    #endif
  }
}
#endif
