#if os(Linux)
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Ends the waiting of a thread for a socket.
final class StopSignal: Sendable {
  enum Found: Equatable {
    case stop
    /// The socket has something, be it an error.
    case datagram
    case nothing
  }

  private let receiver: Int32
  private let sender: Int32

  init() throws(SystemCallError) {
    #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    #else
    let type = SOCK_STREAM | SOCK_CLOEXEC
    #endif
    var pair: [Int32] = [-1, -1]
    guard unsafe socketpair(AF_UNIX, type, 0, &pair) == 0 else { throw .last("socketpair") }
    (receiver, sender) = (pair[0], pair[1])
  }

  deinit {
    _ = close(receiver)
    _ = close(sender)
  }

  /// Ends the waiting that is under way, and all that begins later.
  func stop() {
    // To close the socket would not do: a forked process may hold it open as well.
    _ = shutdown(sender, Int32(SHUT_RDWR))
  }

  /// Looks for the stop, and for something to receive; waits for one of them if `waits` is `true`.
  func look(at descriptor: Int32, waits: Bool) throws(SystemCallError) -> Found {
    var files = [receiver, descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
    while unsafe poll(&files, nfds_t(files.count), waits ? -1 : 0) < 0 {
      guard errno == EINTR else { throw .last("poll") }
    }
    if files[0].revents != 0 { return .stop }
    return files[1].revents != 0 ? .datagram : .nothing
  }
}
#endif
