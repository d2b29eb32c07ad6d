import Foundation

@testable import SteadfastQueue

/// A stored file, and the tasks and values that every version of the library reads from it.
///
/// The library also writes exactly these bytes, unless only earlier versions wrote such files.
struct GoldenFile: Sendable, CustomStringConvertible {
  let name: String
  /// Writes the file again, or `nil` if only earlier versions write such files.
  let write: (@Sendable (inout GoldenWriter) throws -> Void)?

  init(name: String, write: (@Sendable (inout GoldenWriter) throws -> Void)? = nil) {
    self.name = name
    self.write = write
  }

  var description: String { name }

  private static let folder = URL(filePath: #filePath).deletingLastPathComponent()
    .appending(path: "version-1")

  var url: URL { Self.folder.appending(path: "\(name).jsonl") }
  /// A JSON file with the tasks in their order in the queue, then the values in the order of names.
  ///
  /// Fields with default values are left out.
  var tasksURL: URL { Self.folder.appending(path: "\(name).tasks.json") }

  /// The bytes that this version of the library writes.
  func writtenNow() throws -> [UInt8] {
    var writer = try GoldenWriter()
    try write?(&writer)
    return writer.storage.bytes
  }

  static let all = [
    GoldenFile(name: "fields"),
    GoldenFile(name: "fields-2"),
    GoldenFile(name: "fields-3") { try $0.writeFields() },
    GoldenFile(name: "changes"),
    GoldenFile(name: "changes-2"),
    GoldenFile(name: "changes-3") { try $0.writeChanges() },
    GoldenFile(name: "keys"),
    GoldenFile(name: "roles"),
    GoldenFile(name: "roles-2") { try $0.writeRoles() },
    GoldenFile(name: "order-keys") { try $0.writeOrderKeys() },
    GoldenFile(name: "order-keys-compacted"),
    GoldenFile(name: "order-keys-compacted-2") { try $0.writeCompactedOrderKeys() },
    GoldenFile(name: "dependencies") { try $0.writeDependencies() },
    GoldenFile(name: "dependencies-compacted"),
    GoldenFile(name: "dependencies-compacted-2") { try $0.writeCompactedDependencies() },
    GoldenFile(name: "metadata") { try $0.writeMetadata() },
    GoldenFile(name: "metadata-compacted") { try $0.writeCompactedMetadata() },
    GoldenFile(name: "queues") { try $0.writeQueues() },
    GoldenFile(name: "values") { try $0.writeValues() },
    GoldenFile(name: "values-compacted") { try $0.writeCompactedValues() },
    GoldenFile(name: "memory"),
    GoldenFile(name: "memory-2") { try $0.writeMemory() },
    GoldenFile(name: "memory-compacted") { try $0.writeCompactedMemory() },
    GoldenFile(name: "order"),
    GoldenFile(name: "order-2") { try $0.writeOrder() },
    GoldenFile(name: "clock"),
    GoldenFile(name: "clock-2") { try $0.writeClock() },
    GoldenFile(name: "dates"),
    GoldenFile(name: "dates-2") { try $0.writeDates() },
    GoldenFile(name: "failures"),
    GoldenFile(name: "failures-2") { try $0.writeFailures() },
    GoldenFile(name: "put-off"),
    GoldenFile(name: "put-off-2") { try $0.writePostponed() },
    GoldenFile(name: "updates"),
    GoldenFile(name: "updates-2") { try $0.writeUpdates() },
    GoldenFile(name: "compacted"),
    GoldenFile(name: "compacted-2") { try $0.writeCompacted() },
    GoldenFile(name: "sealed") { try $0.writeSealed() },
    GoldenFile(name: "torn") { try $0.writeTorn() },
    GoldenFile(name: "header") { try $0.reopen() },
  ]
}
