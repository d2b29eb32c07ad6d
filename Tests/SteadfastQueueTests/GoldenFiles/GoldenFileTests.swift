import Foundation
import Testing

@testable import SteadfastQueue

/// What was written once is read for ever, and written so for as long as the version is the same.
///
/// The tasks beside each file are also what `Tests/EndToEnd/read_queue_file.py` finds, which knows
/// nothing but the article "The file format".
@Suite struct GoldenFileTests {
  @Test(arguments: GoldenFile.all)
  func `a file of before is read`(file: GoldenFile) throws {
    let contents = try JournalReader.read(Array(try Data(contentsOf: file.url)))
    #expect(contents.table.brokenInvariants() == [])
    let tasks = contents.table.entries.slots.map { contents.table.entries[$0] }
      .sorted { $0.position < $1.position }
    let values = contents.table.values.committed.sorted { left, right in
      left.key.text.utf8.lexicographicallyPrecedes(right.key.text.utf8)
    }
    let found =
      try tasks.map { try $0.fields() as NSDictionary }
      + values.map { name, value in
        ["value": name.text, "data": Data(value.bytes).base64EncodedString()] as NSDictionary
      }
    let json = try JSONSerialization.jsonObject(with: Data(contentsOf: file.tasksURL))
    let expected = try #require(json as? [NSDictionary])
    #expect(found == expected)
  }

  @Test(arguments: GoldenFile.all.filter { $0.write != nil })
  func `what is written now is what was written before`(file: GoldenFile) throws {
    let written = Data(try file.writtenNow())
    guard let data = try? Data(contentsOf: file.url) else {
      try written.write(to: file.url)
      Issue.record("\(file.name) was not there and has been written: check every byte of it")
      return
    }
    #expect(
      String(decoding: written, as: UTF8.self) == String(decoding: data, as: UTF8.self)
        && written == data
    )
  }

  @Test func `every file is known, and every kind of line is in one of them`() throws {
    let folder = try #require(GoldenFile.all.first).url.deletingLastPathComponent()
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    #expect(
      Set(names) == Set(GoldenFile.all.flatMap { [$0.url, $0.tasksURL] }.map(\.lastPathComponent))
    )
    let text = try GoldenFile.all.map {
      String(decoding: try Data(contentsOf: $0.url), as: UTF8.self)
    }
    .joined()
    for kind in [
      "header", "insert", "add", "task", "kept", "compacted", "begin", "succeed", "retry",
      "abandon", "release",
      "park", "cancel", "pause", "resume", "restart", "reschedule", "update", "remove", "extend",
      "unpark", "prune", "rebase", "value", "interruption", "seal",
    ] {
      #expect(text.contains("\"k\":\"\(kind)\""), "\(kind)")
    }
  }
}

extension TaskTable.Entry {
  /// The task as the files beside the golden ones tell it.
  fileprivate func fields() throws -> [String: Any] {
    var fields: [String: Any] = [
      "id": record.id.description, "name": record.name, "priority": record.priority.rawValue,
      "created": record.createdDate.timeIntervalSince1970,
      "available": record.availableDate.timeIntervalSince1970, "state": record.state.rawValue,
    ]
    switch record.maxRetries {
    case .atMost(let count): fields["maxRetries"] = count
    case .alwaysRetry: fields["maxRetries"] = "always"
    }
    if !record.usesBackoff { fields["backoff"] = false }
    fields["key"] = record.uniqueKey
    if record.keyRole == .successor { fields["role"] = "successor" }
    fields["order"] = record.orderKey
    if record.orderKey != nil { fields["orderNumber"] = Int(record.orderNumber) }
    if record.holdsOrder { fields["holds"] = true }
    if !record.conditions.isEmpty {
      fields["requires"] = record.conditions.map(\.rawValue).sorted()
    }
    fields["uniqueUntil"] = record.uniqueUntil?.timeIntervalSince1970
    fields["latestDate"] = record.latestDate?.timeIntervalSince1970
    if hasLostKey { fields["keyless"] = true }
    if !record.tags.isEmpty { fields["tags"] = record.tags.sorted() }
    fields["limit"] = record.timeLimit.map { [$0.components.seconds, $0.components.attoseconds] }
    fields["expires"] = record.expiryDate?.timeIntervalSince1970
    if record.payload.version != 1 { fields["schema"] = record.payload.version }
    if record.retryCount != 0 { fields["retries"] = record.retryCount }
    if record.interruptionCount != 0 { fields["interruptions"] = record.interruptionCount }
    fields["error"] = record.lastError
    fields["failed"] = record.failedDate?.timeIntervalSince1970
    if !record.earlierFailures.isEmpty {
      fields["earlier"] = record.earlierFailures.map {
        [$0.reason, $0.date.timeIntervalSince1970] as [Any]
      }
    }
    if record.isPostponed != (record.retryCount > 0) { fields["putOff"] = record.isPostponed }
    fields["ended"] = record.finishedDate?.timeIntervalSince1970
    let payload = Data(try record.payload.bytes())
    switch record.payload.format {
    case .json:
      fields["payload"] = try JSONSerialization.jsonObject(
        with: payload,
        options: .fragmentsAllowed
      )
    case .binary: fields["data"] = payload.base64EncodedString()
    case .sealedJSON: fields["sealed"] = payload.base64EncodedString()
    case .sealedBinary: fields["sealedData"] = payload.base64EncodedString()
    }
    return fields
  }
}
