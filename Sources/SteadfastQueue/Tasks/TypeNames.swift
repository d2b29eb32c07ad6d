import Synchronization

/// The names that tasks have by default, each found out once for a type.
///
/// A type's name is asked for whenever a task is enqueued, and takes thousands of instructions to
/// find out. The table only grows, by an entry for each type of the program that is asked for, so
/// that it is read without a lock.
final class TypeNames: Sendable {
  static let shared = TypeNames()

  /// A type, and those behind it in its line.
  private final class Entry: Sendable {
    let type: ObjectIdentifier?
    let name: String
    let next = AtomicLazyReference<Entry>()

    init(_ type: ObjectIdentifier?, _ name: String) {
      self.type = type
      self.name = name
    }
  }

  /// The heads of the lines, which stand for no type.
  private let lines = (0..<64).map { _ in Entry(nil, "") }

  /// The name of a type with those of the types around it, as in `Mail.Send`.
  func name(of type: Any.Type) -> String {
    let identifier = ObjectIdentifier(type)
    // The lowest bits of an address are the same for all.
    var entry = lines[Int(bitPattern: identifier) >> 4 & 63]
    while entry.type != identifier {
      entry = entry.next.load() ?? entry.next.storeIfNil(Entry(identifier, Self.findName(of: type)))
    }
    return entry.name
  }

  private static func findName(of type: Any.Type) -> String {
    TypeName.withoutModules(String(reflecting: type))
  }
}
