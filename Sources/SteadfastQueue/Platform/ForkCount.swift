import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Tells a forked process, which goes on without a new program, from its parent.
///
/// Such a child has a copy of everything that its parent had open, but only one of its threads. A
/// check costs the reading of one number. Asking the system for the process ID would take a call
/// each time.
package enum ForkCount {
  private static let count = Atomic<Int>(0)

  private static let isCounted: Bool = {
    // The number that a child reads must exist before the fork.
    _ = count.load(ordering: .relaxed)
    return pthread_atfork(nil, nil, { ForkCount.count.add(1, ordering: .relaxed) }) == 0
  }()

  /// A number that stays the same within a process, and is different in its children.
  package static var current: Int {
    isCounted ? count.load(ordering: .relaxed) : Int(getpid())
  }
}
