import SystemC

/// Wakes a thread that waits for input on a file descriptor.
package final class StopSignal: Sendable {
  package enum WaitResult: Equatable {
    case stop
    /// The descriptor has something to read, possibly an error.
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

  /// Ends the current wait, and each later one at once.
  package func stop() {
    // Closing the socket is not enough, because a forked process may also have it open.
    _ = shutdown(sender, Int32(SHUT_RDWR))
  }

  /// Waits until ``stop()`` is called, the descriptor has input, or a time has passed.
  ///
  /// - Parameters:
  ///   - descriptor: The file descriptor to wait for; `nil` to wait only for ``stop()``.
  ///   - milliseconds: The maximum time to wait; no limit if negative.
  /// - Returns: The reason why the wait ended.
  /// - Throws: The system's error if it has no memory for the call.
  package func wait(
    for descriptor: Int32?,
    milliseconds: Int32
  ) throws(SystemCallError) -> WaitResult {
    // The system ignores negative descriptors.
    var files = [receiver, descriptor ?? -1].map { file in
      pollfd(fd: file, events: Int16(POLLIN), revents: 0)
    }
    let count = nfds_t(files.count)
    _ = try SystemCall.repeatingWhileInterrupted("poll") {
      Int(unsafe poll(&files, count, milliseconds))
    }
    if files[0].revents != 0 { return .stop }
    return files[1].revents != 0 ? .input : .nothing
  }
}
