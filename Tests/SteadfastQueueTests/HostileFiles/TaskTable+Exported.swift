import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// The tasks and values in the format of `Tests/EndToEnd/read_queue_file.py`.
  ///
  /// The tasks come first, in their order in the queue and without fields that have default values.
  /// The values follow in the order of their names.
  func contentsForPythonReader() throws -> [NSDictionary] {
    let tasks = entries.slots.map { entries[$0] }.sorted { $0.position < $1.position }
    let values = values.committed.sorted { left, right in
      left.key.text.utf8.lexicographicallyPrecedes(right.key.text.utf8)
    }
    return try tasks.map { entry in
      var fields = try entry.fields()
      if entry.remembers { fields["memory"] = memory(of: entry.id).namesAndBytes() }
      return fields as NSDictionary
    }
      + values.map { name, value in
        ["value": name.text, "data": Data(value.bytes).base64EncodedString()] as NSDictionary
      }
  }
}

extension TaskTable.Entry {
  private var dependencyFields: [String: Any] {
    let dependencies = record.dependencies
    var fields: [String: Any] = [:]
    func add(_ ids: some Sequence<TaskID>, _ name: String) {
      let texts = ids.map(\.description).sorted()
      if !texts.isEmpty { fields[name] = texts }
    }
    add(dependencies.tasks, "after")
    if dependencies.rule == .allEnded { fields["when"] = "allEnded" }
    fields["follower"] = dependencies.follower?.description
    add(dependencies.failed.keys.filter { dependencies.failed[$0] == .abandoned }, "afterAbandoned")
    add(dependencies.failed.keys.filter { dependencies.failed[$0] == .cancelled }, "afterCancelled")
    fields["cause"] = dependencies.cause?.description
    fields["members"] = dependencies.batch?.total
    fields["membersSucceeded"] = dependencies.batch?.succeeded
    fields["membersFailed"] = dependencies.batch?.failed
    return fields
  }

  /// The task in the format of `Tests/EndToEnd/read_queue_file.py`.
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
    if record.blocksOrderOnFailure { fields["holds"] = true }
    if !record.conditions.isEmpty {
      fields["requires"] = record.conditions.map(\.rawValue).sorted()
    }
    if !record.queue.isEmpty { fields["queue"] = record.queue }
    fields.merge(dependencyFields) { first, _ in first }
    fields["uniqueUntil"] = record.uniqueUntil?.timeIntervalSince1970
    fields["latestDate"] = record.latestDate?.timeIntervalSince1970
    if isKeyless { fields["keyless"] = true }
    if !record.tags.isEmpty { fields["tags"] = record.tags.sorted() }
    if !record.metadata.isEmpty { fields["metadata"] = record.metadata }
    fields["limit"] = record.timeLimit.map { [$0.components.seconds, $0.components.attoseconds] }
    fields["expires"] = record.expiryDate?.timeIntervalSince1970
    if record.payload.version != 1 { fields["schema"] = record.payload.version }
    if record.retryCount != 0 { fields["retries"] = record.retryCount }
    if record.interruptionCount != 0 { fields["interruptions"] = record.interruptionCount }
    fields["error"] = record.lastError
    fields["failed"] = record.failedDate?.timeIntervalSince1970
    fields["attempt"] = record.failedAttempt?.text
    if record.countedFrom != record.usualOrigin {
      fields["from"] = (record.countedFrom ?? TaskRecord.noOrigin).timeIntervalSince1970
    }
    if !record.earlierFailures.isEmpty {
      fields["earlier"] = record.earlierFailures.map {
        [$0.reason, $0.date.timeIntervalSince1970] + ($0.attempt.map { [$0.text] } ?? []) as [Any]
      }
    }
    fields["knows"] = record.parkedVersion
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

extension TaskMemory {
  /// Pairs of a name and its bytes, in the order of the names.
  fileprivate func namesAndBytes() -> [[String]] {
    names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }.map { name in
      [name, Data(self[name] ?? []).base64EncodedString()]
    }
  }
}
