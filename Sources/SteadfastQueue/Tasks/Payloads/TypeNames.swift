import Synchronization

/// The names that tasks have by default, each found out once for a type.
///
/// A type's name is asked for whenever a task is enqueued, and takes thousands of instructions to
/// find out. The table only grows, by an entry for each type of the program that is asked for. A lock
/// and a dictionary take a fifth of the time of lines of lazy references, which need no lock.
final class TypeNames: Sendable {
  static let shared = TypeNames()

  private let names = Mutex<[ObjectIdentifier: String]>([:])

  /// The name of a type with those of the types around it, as in `Mail.Send`.
  func name(of type: Any.Type) -> String {
    let identifier = ObjectIdentifier(type)
    if let name = names.withLock({ $0[identifier] }) { return name }
    let name = TypeName.withoutModules(String(reflecting: type))
    names.withLock { $0[identifier] = name }
    return name
  }
}
