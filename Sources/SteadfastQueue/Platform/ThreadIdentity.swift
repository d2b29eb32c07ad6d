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

/// The identity of a thread; no two threads of a process ever have the same.
///
/// ``current`` asks the system again each time. The C libraries declare `pthread_self` constant, so
/// an optimizer may keep its answer across a suspension, after which the code may run on another
/// thread.
package struct ThreadIdentity: Sendable, Equatable {
  private static let count = Atomic<UInt>(0)

  private static let key: pthread_key_t = {
    var key = pthread_key_t()
    let error = unsafe pthread_key_create(&key, nil)
    precondition(error == 0, "\(SystemCallError("pthread_key_create", error))")
    return key
  }()

  private let number: UInt

  package static var current: ThreadIdentity {
    if let stored = unsafe pthread_getspecific(key) {
      return ThreadIdentity(number: UInt(bitPattern: stored))
    }
    let number = count.add(1, ordering: .relaxed).newValue
    let error = unsafe pthread_setspecific(key, UnsafeRawPointer(bitPattern: number))
    precondition(error == 0, "\(SystemCallError("pthread_setspecific", error))")
    return ThreadIdentity(number: number)
  }
}
