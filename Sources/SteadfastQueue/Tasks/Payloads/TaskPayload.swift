#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a task carries: any value that can be encoded, and the name under which its handler is
/// found again after a restart.
///
/// ```swift
/// struct PostComment: TaskPayload { var text: String }
/// ```
///
/// A type may say what its tasks have in common, so that it isn't repeated at each call of `enqueue`:
///
/// ```swift
/// struct Sync: TaskPayload {
///   var account: String
///   static var options: TaskOptions { TaskOptions(maxRetries: .alwaysRetry, priority: .high) }
///   var uniqueKey: String? { account }
/// }
/// ```
///
/// The payload is kept as the JSON of its `Codable` conformance. Give a type that you rename, or move
/// into another type, its old name in ``formerTaskNames``, so that tasks from before are still
/// performed. When a change of
/// its properties makes old JSON unreadable, raise ``schemaVersion`` and implement
/// ``decode(from:version:)``:
///
/// ```swift
/// extension PostComment {
///   static var schemaVersion: Int { 2 }
///   static func decode(from json: Data, version: Int) throws -> PostComment {
///     guard version < 2 else { return try JSONDecoder().decode(Self.self, from: json) }
///     let old = try JSONDecoder().decode(FirstPostComment.self, from: json)
///     return PostComment(text: old.body)
///   }
/// }
/// ```
public protocol TaskPayload: Codable, Sendable {
  /// The name that is stored with the task; by default the type's own, after those of the types
  /// around it, without the module: `Mail.Send` for a type `Send` in a type `Mail`.
  ///
  /// It is the same in each build of the program, for generic, private and local types too. No two
  /// types may have one name: ``TaskQueue/register(_:maxConcurrentTasks:perform:)`` says what happens
  /// then. It may not be empty.
  static var taskName: String { get }
  /// Names that tasks of this type were stored under before; by default none.
  static var formerTaskNames: [String] { get }
  /// The version of the payload's JSON that is stored with the task; by default 1.
  static var schemaVersion: Int { get }
  /// What is chosen for each task of this type, unless the call that adds it says otherwise; by
  /// default nothing, which leaves it to the queue's ``TaskQueueConfiguration/taskDefaults``.
  ///
  /// It is asked for at each call of `enqueue`.
  static var options: TaskOptions { get }

  /// The key that only one task of this payload may bear, unless the call that adds it gives
  /// another; by default `nil`, for none.
  ///
  /// Declare it with the type `String?`: a property of the type `String` is not this one, and is not
  /// asked for.
  var uniqueKey: String? { get }

  /// Makes a payload of what was stored, by this version of the type or an earlier one.
  ///
  /// By default it decodes the JSON, whatever its version. It is not called for a version that is
  /// later than ``schemaVersion``.
  /// - Throws: what makes it unreadable; then the task is put aside and stays, until a handler is
  ///   registered for it anew or the queue runs again.
  static func decode(from json: Data, version: Int) throws -> Self
}

extension TaskPayload {
  /// The type's own name, after those of the types around it, without the module.
  public static var taskName: String { TypeNames.shared.name(of: Self.self) }
  /// No former names.
  public static var formerTaskNames: [String] { [] }
  /// 1.
  public static var schemaVersion: Int { 1 }
  /// Nothing.
  public static var options: TaskOptions { TaskOptions() }
  /// `nil`.
  public var uniqueKey: String? { nil }

  /// Decodes the JSON, whatever its version.
  public static func decode(from json: Data, version: Int) throws -> Self {
    try JSONDecoder().decode(Self.self, from: json)
  }
}
