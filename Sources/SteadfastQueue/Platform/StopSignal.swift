import SystemC

/// Ends the waiting of a thread for a descriptor, such as that of a socket.
package final class StopSignal: Sendable {
  package enum Found: Equatable {
    case stop
    /// The descriptor has something to read, be it an error.
    case input
    case nothing
  }

  private let receiver: Int32
  private let sender: Int32

  package init() throws(SystemCallError) {
    #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    #elseif canImport(Darwin)
    let type = SOCK_STREAM
    #else
    let type = SOCK_STREAM | SOCK_CLOEXEC
    #endif
    var pair: [Int32] = [-1, -1]
    guard unsafe socketpair(AF_UNIX, type, 0, &pair) == 0 else { throw .last("socketpair") }
    (receiver, sender) = (pair[0], pair[1])
    #if canImport(Darwin)
    for descriptor in pair { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
    #endif
  }

  deinit {
    _ = close(receiver)
    _ = close(sender)
  }

  /// Ends the waiting that is under way, and all that begins later.
  package func stop() {
    // To close the socket would not do: a forked process may hold it open as well.
    _ = shutdown(sender, Int32(SHUT_RDWR))
  }

  /// Waits for the stop, for something to read, or for a time.
  ///
  /// - Parameters:
  ///   - descriptor: What to read from; `nil` to wait for the stop alone.
  ///   - milliseconds: The longest time to wait; for ever if it is negative.
  /// - Returns: What ended the wait.
  /// - Throws: The error of the system, which has no memory for the call.
  package func wait(
    for descriptor: Int32?,
    milliseconds: Int32
  ) throws(SystemCallError) -> Found {
    // The system takes no notice of a descriptor that is negative.
    var files = [receiver, descriptor ?? -1].map { file in
      pollfd(fd: file, events: Int16(POLLIN), revents: 0)
    }
    let count = nfds_t(files.count)
    _ = try SystemCall.retryingInterrupted("poll") {
      Int(unsafe poll(&files, count, milliseconds))
    }
    if files[0].revents != 0 { return .stop }
    return files[1].revents != 0 ? .input : .nothing
  }
}
