/// What a task carries: any value that can be encoded, and the name under which its handler is
/// found again after a restart.
///
/// ```swift
/// struct PostComment: TaskPayload { var text: String }
/// ```
///
/// The payload is kept as the JSON of its `Codable` conformance. Give a type that you rename its
/// old name in ``formerTaskNames``, so that tasks from before are still performed.
public protocol TaskPayload: Codable, Sendable {
  /// The name that is stored with the task; by default the type's own.
  static var taskName: String { get }
  /// Names that tasks of this type were stored under before; by default none.
  static var formerTaskNames: [String] { get }
}

extension TaskPayload {
  /// The type's own name.
  public static var taskName: String { String(describing: Self.self) }
  /// No former names.
  public static var formerTaskNames: [String] { [] }
}
