#if SQLite
import SteadfastQueue

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Tells when something is written to a file, where the system can: on Linux.
///
/// The file may be missing, and may come and go.
struct FileWatch: ~Copyable {
  #if os(Linux)
  /// What becomes readable when something is written; `nil` if nothing tells.
  let descriptor: Int32?

  init() {
    #if canImport(Glibc)
    let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
    #else
    let flags = IN_CLOEXEC | IN_NONBLOCK
    #endif
    let descriptor = inotify_init1(flags)
    // A user has a limited number of them. Without one, the file is looked at more often.
    self.descriptor = descriptor < 0 ? nil : descriptor
  }

  deinit { if let descriptor { _ = close(descriptor) } }

  /// Begins to watch the file with a path, or goes on, and returns whether it is watched.
  func follow(_ path: String) -> Bool {
    guard let descriptor else { return false }
    return unsafe inotify_add_watch(descriptor, path, UInt32(IN_MODIFY)) >= 0
  }

  /// Forgets what has become readable.
  func clear() {
    guard let descriptor else { return }
    unsafe withUnsafeTemporaryAllocation(byteCount: 4_096, alignment: 8) { buffer in
      // It is not read to its end: what is left ends the next wait at once.
      _ = unsafe read(descriptor, buffer.baseAddress, buffer.count)
    }
  }
  #else
  /// Nothing tells.
  var descriptor: Int32? { nil }

  /// Returns `false`: no file is watched.
  func follow(_: String) -> Bool { false }

  /// Does nothing.
  func clear() {}
  #endif
}
#endif
