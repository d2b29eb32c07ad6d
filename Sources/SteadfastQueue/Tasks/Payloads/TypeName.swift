import Synchronization

/// Separates the name of a type from the place where the type is declared.
enum TypeName {
  /// Returns a type's name for people, with its module.
  ///
  /// For example, `App.(unknown context at $1a2b).Box<Swift.Int>` becomes `App.Box<Swift.Int>`.
  static func readable(_ type: Any.Type) -> String {
    shortened(String(reflecting: type), keepsModules: true)
  }

  /// Returns a type's full name without the parts that may differ in the next build.
  ///
  /// These are the modules, and the parts that stand for a file or a function: `App.(unknown
  /// context at $1a2b).Box<Swift.Int>` becomes `Box<Int>`.
  static func withoutModules(_ name: String) -> String { shortened(name, keepsModules: false) }

  private static func shortened(_ name: String, keepsModules: Bool) -> String {
    var result = ""
    var rest = name[...]
    var isPathBegun = false
    while let first = rest.first {
      if let place = takePlace(from: &rest) {
        result += place
        isPathBegun = isPathBegun || !place.isEmpty
      } else if isPart(ofIdentifier: first) {
        let identifier = takeIdentifier(from: &rest)
        if !keepsModules, !isPathBegun, rest.first == "." {
          // This is the module.
          rest.removeFirst()
        } else {
          result += identifier
        }
        isPathBegun = true
      } else {
        rest.removeFirst()
        result.append(first)
        isPathBegun = first == "."
      }
    }
    return result
  }

  /// Takes a part in parentheses that stands for a file, a function or an extension.
  ///
  /// - Returns: The identifier in the part, empty if it has none; `nil` if there is no such part.
  private static func takePlace(from name: inout Substring) -> Substring? {
    guard name.first == "(", let end = name.firstIndex(of: ")") else { return nil }
    let inside = name[name.index(after: name.startIndex)..<end]
    let words = inside.split(separator: " ")
    let identifier: Substring
    if inside.hasPrefix("unknown context at ") || inside.hasPrefix("extension in ") {
      identifier = ""
    } else if words.count == 3, words[1] == "in", words[2].hasPrefix("_") || words[2].hasPrefix("$")
    {
      identifier = words[0]
    } else {
      return nil
    }
    name = name[name.index(after: end)...]
    // Drops the dot after an omitted place, and the colon after an extension.
    if identifier.isEmpty, name.first == "." || name.first == ":" { name.removeFirst() }
    return identifier
  }

  private static func takeIdentifier(from name: inout Substring) -> Substring {
    var end = name.startIndex
    if name.first == "`" {
      end = name.dropFirst().firstIndex(of: "`") ?? name.startIndex
      end = name.index(after: end)
    } else {
      end = name.firstIndex { !isPart(ofIdentifier: $0) } ?? name.endIndex
    }
    defer { name = name[end...] }
    return name[..<end]
  }

  private static func isPart(ofIdentifier character: Character) -> Bool {
    character.isLetter || character.isNumber || character == "_" || character == "`"
      || !character.isASCII
  }
}

/// The default names of tasks, each of which is found once for a type.
///
/// A type's name is needed whenever a task is enqueued, and takes thousands of instructions to
/// find. The table only grows, by an entry for each type of the program whose name is needed. A
/// lock and a dictionary take a fifth of the time of lists of lazy references, which need no lock.
final class TypeNames: Sendable {
  static let shared = TypeNames()

  private let names = Mutex<[ObjectIdentifier: String]>([:])

  /// Returns the name of a type after those of the types around it, as in `Mail.Send`.
  func name(of type: Any.Type) -> String {
    let identifier = ObjectIdentifier(type)
    if let name = names.withLock({ $0[identifier] }) { return name }
    let name = TypeName.withoutModules(String(reflecting: type))
    names.withLock { $0[identifier] = name }
    return name
  }
}
