import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Tells a process from the one that it was forked off, where it goes on without a new program.
///
/// Such a child has a copy of all that its parent had open, and of its threads only one. To look
/// costs the reading of a number; to ask the system for the process's own would be a call each time.
enum ForkCount {
  private static let count = Atomic<Int>(0)

  private static let isCounted: Bool = {
    // What a child reads must be there before the fork.
    _ = count.load(ordering: .relaxed)
    return pthread_atfork(nil, nil, { ForkCount.count.add(1, ordering: .relaxed) }) == 0
  }()

  /// A number that stays the same within a process, and is another one in its children.
  static var current: Int {
    isCounted ? count.load(ordering: .relaxed) : Int(getpid())
  }
}
