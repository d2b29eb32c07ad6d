#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reads the tasks in the bodies of lines.
extension JournalDecoder {
  /// Checks a task less strictly than a new one, because an earlier version may have written it.
  func checkForm(of record: TaskRecord) throws(JournalDecodingError) {
    do { try record.checkReadable() } catch { throw .malformed(error.message) }
  }

  mutating func record() throws(JournalDecodingError) -> TaskRecord {
    let state = fields.has(.state) ? try state() : .waiting
    guard state != .running else { throw .malformed("it adds a task that runs already") }
    let retryCount = fields.has(.retries) ? try fields.integer(.retries) : 0
    let interruptionCount = fields.has(.interruptions) ? try fields.integer(.interruptions) : 0
    if min(retryCount, interruptionCount) < 0 { throw .malformed("a count is negative") }
    var record = TaskRecord(
      id: try fields.id(),
      name: try name(),
      payload: try payload(),
      priority: TaskQueue.Priority(rawValue: try fields.integer(.priority)),
      createdDate: try fields.date(.created),
      maxRetries: try maxRetries(),
      usesBackoff: try !fields.flag(.backoff, "false"),
      uniqueKey: fields.has(.key) ? try fields.text(.key) : nil,
      uniqueUntil: fields.has(.uniqueUntil) ? try fields.date(.uniqueUntil) : nil,
      latestDate: fields.has(.latestDate) ? try fields.date(.latestDate) : nil,
      orderKey: fields.has(.order) ? try fields.text(.order) : nil,
      holdsOrder: try fields.flag(.holds),
      conditions: fields.has(.requires)
        ? Set(try fields.list(.requires).map(TaskCondition.init(rawValue:))) : [],
      dependencies: try fields.dependencies(),
      queue: try queue(),
      tags: fields.has(.tags) ? try fields.texts(.tags) : [],
      timeLimit: fields.has(.limit) ? try fields.duration(.limit) : nil,
      expiryDate: fields.has(.expires) ? try fields.date(.expires) : nil,
      state: state,
      availableDate: try fields.date(.available),
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: fields.has(.error) ? try fields.text(.error) : nil,
      failedDate: fields.has(.failed) ? try fields.date(.failed) : nil,
      earlierFailures: fields.has(.earlier) ? try fields.failures(.earlier) : [],
      isPostponed: fields.has(.putOff) ? try fields.truth(.putOff) : nil,
      finishedDate: fields.has(.ended) ? try fields.date(.ended) : nil
    )
    record.setOrigin(try origin())
    return record
  }

  /// Reads from which date another one was counted, if the line says so.
  mutating func origin() throws(JournalDecodingError) -> Date? {
    fields.has(.from) ? try fields.date(.from) : nil
  }

  func maxRetries() throws(JournalDecodingError) -> RetryLimit {
    let range = try fields.range(.maxRetries)
    if fields.bytes[range.lowerBound] == UInt8(ascii: "\"") {
      guard try fields.text(.maxRetries) == "always" else {
        throw .malformed("its number of retries can't be read")
      }
      return .alwaysRetry
    }
    let limit = try fields.integer(.maxRetries)
    guard limit >= 0 else { throw .malformed("its number of retries is negative") }
    return .atMost(limit)
  }

  private mutating func name() throws(JournalDecodingError) -> String {
    let range = try fields.range(.name)
    if let last = lastName, fields.bytes[range].elementsEqual(fields.bytes[last.bytes]) {
      return last.text
    }
    let text = try fields.text(.name)
    lastName = (range, text)
    return text
  }

  var hasPayload: Bool {
    fields.has(.schema) || Self.payloadFormats.contains { fields.has($0.field) }
  }

  func payload() throws(JournalDecodingError) -> StoredPayload {
    let version = fields.has(.schema) ? try fields.integer(.schema) : 1
    var found: (field: JournalField, format: StoredPayload.Format)?
    for candidate in Self.payloadFormats where fields.has(candidate.field) {
      guard found == nil else { throw .malformed("it has more than one payload") }
      found = candidate
    }
    guard let (field, format) = found else { throw .malformed("it has no payload") }
    if format == .json {
      return StoredPayload(
        Array(fields.bytes[try fields.range(field)]),
        format: format,
        version: version
      )
    }
    return StoredPayload(try fields.bytes(field), format: format, version: version)
  }

  private static let payloadFormats: [(field: JournalField, format: StoredPayload.Format)] = [
    (.payload, .json), (.data, .binary), (.sealed, .sealedJSON), (.sealedData, .sealedBinary),
  ]
}
