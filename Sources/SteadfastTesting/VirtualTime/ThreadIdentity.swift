#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Which thread this is, to compare with another while both live.
struct ThreadIdentity: Sendable, Equatable {
  private let value: UInt

  static var current: ThreadIdentity {
    #if canImport(Glibc)
    ThreadIdentity(value: UInt(pthread_self()))
    #else
    // Elsewhere it is a pointer, of which only the address is used.
    ThreadIdentity(value: UInt(bitPattern: pthread_self()))
    #endif
  }
}
