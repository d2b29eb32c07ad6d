#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What all occurrences of a schedule have in common: the task's name, payload and options.
struct TaskTemplate: Codable, Equatable, Sendable {
  let name: String
  private let format: String
  private let version: Int
  /// The bytes of a payload that is JSON.
  private let json: String?
  /// The bytes of any other payload.
  private let data: Data?
  private let priority: Int?
  /// -1 stands for any number.
  private let maxRetries: Int?
  private let usesBackoff: Bool?
  private let timeLimit: Duration?
  private let tags: [String]?
  private let orderKey: String?
  private let holdsOrder: Bool?
  private let conditions: [String]?

  init(_ name: String, _ payload: StoredPayload, _ options: TaskOptions) throws {
    self.name = name
    priority = options.priority?.rawValue
    maxRetries =
      switch options.maxRetries {
      case .atMost(let count): count
      case .alwaysRetry: -1
      case nil: nil
      }
    usesBackoff = options.usesBackoff
    timeLimit = options.timeLimit
    tags = options.tags.isEmpty ? nil : options.tags.sorted()
    orderKey = options.inOrder
    holdsOrder = options.inOrder == nil ? nil : options.holdsOrder
    conditions = options.requires.isEmpty ? nil : options.requires.map(\.rawValue).sorted()
    let bytes = try payload.bytes()
    format = payload.format.rawValue
    version = payload.version
    json = payload.format == .json ? String(decoding: bytes, as: UTF8.self) : nil
    data = payload.format == .json ? nil : Data(bytes)
  }

  /// The payload as it is stored.
  ///
  /// - Throws: A ``TaskQueueError`` if a later version has stored it in a format of its own.
  var payload: StoredPayload {
    get throws(TaskQueueError) {
      guard let format = StoredPayload.Format(rawValue: format) else {
        throw TaskQueueError(
          .undecodablePayload,
          "the payload of '\(name)' has the format '\(format)', which this version does not know"
        )
      }
      let bytes = json.map { Array($0.utf8) } ?? data.map { Array($0) } ?? []
      return StoredPayload(bytes, format: format, version: version)
    }
  }

  /// Makes the record of an occurrence.
  func record(
    id: TaskID,
    payload: StoredPayload,
    prohibitsBackoff: Bool,
    availableDate: Date,
    now: Date
  ) -> TaskRecord {
    TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority.map(TaskQueue.Priority.init(rawValue:)) ?? .normal,
      createdDate: now,
      maxRetries: maxRetries.map { $0 < 0 ? .alwaysRetry : .atMost($0) } ?? 10,
      usesBackoff: !prohibitsBackoff && usesBackoff ?? true,
      orderKey: orderKey,
      holdsOrder: holdsOrder ?? false,
      conditions: Set((conditions ?? []).map(TaskCondition.init(rawValue:))),
      tags: Set(tags ?? []),
      timeLimit: timeLimit,
      availableDate: availableDate.storable
    )
  }
}
