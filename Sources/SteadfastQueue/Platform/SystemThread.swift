#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Threads of the system, for work that blocks.
package enum SystemThread {
  private final class Work: Sendable {
    let perform: @Sendable () -> Void

    init(_ perform: @escaping @Sendable () -> Void) { self.perform = perform }
  }

  /// Starts a thread that ends when `work` returns.
  package static func start(_ work: @escaping @Sendable () -> Void) throws(SystemCallError) {
    let context = unsafe Unmanaged.passRetained(Work(work))
    let number = unsafe create(context.toOpaque())
    guard number == 0 else {
      unsafe context.release()
      throw SystemCallError("pthread_create", number)
    }
  }

  /// Blocks signals on this thread, except those that report an error of the program itself.
  ///
  /// A signal that is sent to the process goes to one of the program's own threads. Here it would
  /// interrupt a flush.
  ///
  /// A write beyond the process's limit for the size of a file fails, and does not end the process.
  /// Linux sends the signal for that to the thread that writes, so the program's other threads keep
  /// the handling that they have chosen.
  private static func blockSignals() {
    var signals = sigset_t()
    _ = unsafe sigfillset(&signals)
    for signal in [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP] {
      _ = unsafe sigdelset(&signals, signal)
    }
    _ = unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  private static func create(_ context: UnsafeMutableRawPointer) -> Int32 {
    #if canImport(Darwin) || canImport(Musl)
    var thread: pthread_t?
    #else
    var thread = pthread_t()
    #endif
    let number = unsafe pthread_create(
      &thread,
      nil,
      { context in
        // The C libraries do not agree on whether the argument and the result may be null. Nothing
        // reads the result.
        let pointer: UnsafeMutableRawPointer? = unsafe context
        guard let pointer = unsafe pointer else { return unsafe context }
        let work = unsafe Unmanaged<Work>.fromOpaque(pointer).takeRetainedValue()
        SystemThread.blockSignals()
        work.perform()
        return unsafe context
      },
      context
    )
    #if canImport(Darwin) || canImport(Musl)
    if number == 0, let thread = unsafe thread { unsafe pthread_detach(thread) }
    #else
    if number == 0 { pthread_detach(thread) }
    #endif
    return number
  }
}
