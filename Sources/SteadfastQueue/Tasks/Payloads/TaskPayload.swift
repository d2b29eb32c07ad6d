import Synchronization
public import SystemFoundation

/// The type of a value that a task passes to its handler.
///
/// A payload is stored with a name, by which the queue finds the handler, even in a later process.
///
/// ```swift
/// struct PostComment: TaskPayload { var text: String }
/// ```
///
/// A payload can choose the options of its task, so that they aren't repeated at each `enqueue`:
///
/// ```swift
/// struct Sync: TaskPayload {
///   var account: String
///   var options: TaskOptions {
///     TaskOptions(maxRetries: .alwaysRetry, orderKey: account)
///   }
///   var uniqueKey: String? { account }
/// }
/// ```
///
/// The payload is stored as the JSON of its `Codable` conformance. When you rename a payload type,
/// or move it into another type, add its old name to ``formerTaskNames``, so that earlier tasks are
/// still performed. When a change of the type's properties makes old JSON unreadable, raise
/// ``schemaVersion`` and implement ``decode(from:version:)``:
///
/// ```swift
/// extension PostComment {
///   static var schemaVersion: Int { 2 }
///   static func decode(from json: Data, version: Int) throws -> PostComment {
///     guard version < 2 else {
///       return try JSONDecoder().decode(Self.self, from: json)
///     }
///     let old = try JSONDecoder().decode(FirstPostComment.self, from: json)
///     return PostComment(text: old.body)
///   }
/// }
/// ```
public protocol TaskPayload: Codable, Sendable {
  /// The name that is stored with the task; by default the type's own.
  ///
  /// The default is the type's name, preceded by the names of the enclosing types, without the
  /// module: `Mail.Send` for a type `Send` in a type `Mail`. The default is the same in each build
  /// of the program, even for generic, private and local types.
  ///
  /// No two types may have the same name; ``TaskQueue/register(_:maxConcurrentTasks:perform:)``
  /// says what happens if they do. A name must not be empty, and must not contain NUL (U+0000).
  static var taskName: String { get }
  /// The names under which earlier versions of the program stored tasks of this type; by default
  /// none.
  static var formerTaskNames: [String] { get }
  /// The version of the payload's JSON that is stored with the task; by default 1.
  ///
  /// A queue leaves tasks with a higher version alone: they wait for a process that runs a newer
  /// version of the program.
  static var schemaVersion: Int { get }
  /// The options of the payload's task; by default, no option is set.
  ///
  /// The call that adds the task may override these options. Options that are not set come from the
  /// queue's ``TaskQueueConfiguration/taskDefaults``. This property is read once, when the task is
  /// added.
  var options: TaskOptions { get }

  /// The type of ``uniqueKey``: `String?`, or `String` if each task has a key.
  associatedtype DeclaredUniqueKey = String?
  /// The key that identifies duplicates among the type's tasks; by default `nil`, for no key.
  ///
  /// <doc:UniqueTasks> says what happens to a second task with the key.
  ///
  /// The call that adds a task may give another key. Declare the property with the type `String?`
  /// or `String`; the compiler refuses other types.
  var uniqueKey: DeclaredUniqueKey { get }
  /// The ``uniqueKey``, as queues read it. Don't implement it.
  var storedUniqueKey: String? { get }

  /// Makes a payload from JSON that this version of the type, or an earlier one, has stored.
  ///
  /// By default, this decodes the JSON in the same way for all versions. The function is not called
  /// for a version above ``schemaVersion``.
  ///
  /// - Throws: any error, if the JSON can't be decoded. The task is then parked: it waits until a
  ///   handler is registered for its name again, or the queue runs again.
  static func decode(from json: Data, version: Int) throws -> Self
}

extension TaskPayload {
  /// The type's own name, preceded by the names of the enclosing types, without the module.
  public static var taskName: String { TypeNames.shared.name(of: Self.self) }
  /// No former names.
  public static var formerTaskNames: [String] { [] }
  /// The version 1.
  public static var schemaVersion: Int { 1 }
  /// No options.
  public var options: TaskOptions { TaskOptions() }

  /// Decodes the JSON in the same way for all versions.
  public static func decode(from json: Data, version: Int) throws -> Self {
    try JSONDecoder().decode(Self.self, from: json)
  }
}

extension TaskPayload where DeclaredUniqueKey == String? {
  /// `nil`.
  public var uniqueKey: String? { nil }
  /// The declared key.
  public var storedUniqueKey: String? { uniqueKey }
}

extension TaskPayload where DeclaredUniqueKey == String {
  /// The declared key.
  public var storedUniqueKey: String? { uniqueKey }
}

extension TaskPayload {
  /// Makes the compiler reject a payload type whose `uniqueKey` is neither a `String?` nor a
  /// `String`, because queues would ignore the key.
  @available(*, unavailable, message: "declare 'uniqueKey' with the type 'String?' or 'String'")
  public var storedUniqueKey: String? { nil }
}

/// Shortens the full names of types.
enum TypeName {
  /// Returns a type's name for a message, with its module.
  ///
  /// For example, `App.(unknown context at $1a2b).Box<Swift.Int>` becomes `App.Box<Swift.Int>`.
  static func readable(_ type: Any.Type) -> String {
    shortened(String(reflecting: type), keepsModules: true)
  }

  /// Returns a type's full name without modules and contexts, which may differ in the next build.
  ///
  /// For example, `App.(unknown context at $1a2b).Box<Swift.Int>` becomes `Box<Int>`.
  static func withoutModules(_ name: String) -> String { shortened(name, keepsModules: false) }

  private static func shortened(_ name: String, keepsModules: Bool) -> String {
    var result = ""
    var rest = name[...]
    var isPathBegun = false
    while let first = rest.first {
      if let identifier = removeContext(from: &rest) {
        result += identifier
        isPathBegun = isPathBegun || !identifier.isEmpty
      } else if isPart(ofIdentifier: first) {
        let identifier = removeIdentifier(from: &rest)
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

  /// Removes the leading context of a name: parentheses that denote a file, function or extension.
  ///
  /// - Returns: The type's identifier, if the parentheses contain it, or else an empty string;
  ///   `nil` if the name does not begin with a context.
  private static func removeContext(from name: inout Substring) -> Substring? {
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
    // Drop the dot after an omitted context, or the colon after an extension.
    if identifier.isEmpty, name.first == "." || name.first == ":" { name.removeFirst() }
    return identifier
  }

  private static func removeIdentifier(from name: inout Substring) -> Substring {
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

/// A cache of the default task names of payload types.
///
/// Each call that enqueues a task needs the name of the payload's type, and computing that name
/// costs thousands of instructions. The cache has at most one entry for each type of the program. A
/// dictionary with a lock takes a fifth of the time of a list without locks.
final class TypeNames: Sendable {
  static let shared = TypeNames()

  private let names = Mutex<[ObjectIdentifier: String]>([:])

  /// Returns the name of a type, preceded by the names of the enclosing types, as in `Mail.Send`.
  func name(of type: Any.Type) -> String {
    let identifier = ObjectIdentifier(type)
    if let name = names.withLock({ $0[identifier] }) { return name }
    let name = TypeName.withoutModules(String(reflecting: type))
    names.withLock { $0[identifier] = name }
    return name
  }
}
