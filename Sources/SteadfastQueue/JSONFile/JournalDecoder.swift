#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Why a line whose checksum is right can't be understood.
enum JournalDecodingError: Error, Equatable {
  case unknownKind(String)
  case malformed(String)
}

/// Reads the body of a line.
///
/// Its fields are read as strictly as they are written, so that whoever reads the file with another
/// JSON reader finds the same tasks in it.
struct JournalDecoder {
  /// Twice as many as any line has: each is looked for among the others.
  private static let maxFieldCount = 64
  /// In bytes, of a number, a kind, and the name of a field: twice as long as any is written, so
  /// that a message about one is short.
  private static let maxTokenLength = 64

  private let bytes: [UInt8]
  private let kind: String
  private var fields: [(key: String, value: Range<Int>)] = []

  static func entry(
    of line: JournalLine,
    in bytes: [UInt8]
  ) throws(JournalDecodingError) -> JournalEntry {
    let entry = try JournalDecoder(bytes, line.body).entry()
    do {
      switch entry {
      case .change(let change): try change.checkForm()
      case .task(let task): try task.record.checkForm()
      case .header, .compacted, .begin, .interruption, .seal: break
      }
    } catch {
      throw .malformed(error.message)
    }
    return entry
  }

  private init(_ bytes: [UInt8], _ body: Range<Int>) throws(JournalDecodingError) {
    self.bytes = bytes
    var scanner = JSONScanner(bytes, body)
    guard scanner.skip("\"k\":"), let kind = Self.name(&scanner) else {
      throw .malformed("it has no kind")
    }
    self.kind = kind
    while scanner.skip(",") {
      guard let key = Self.name(&scanner), scanner.skip(":"), let value = scanner.value() else {
        throw .malformed("its fields can't be read")
      }
      guard !fields.contains(where: { $0.key == key }) else {
        throw .malformed("it has the field '\(key)' twice")
      }
      guard fields.count < Self.maxFieldCount else { throw .malformed("it has too many fields") }
      fields.append((key, value))
    }
    guard scanner.skip("}"), scanner.isAtEnd else {
      throw .malformed("it does not end where it should")
    }
  }

  /// The name of a kind or a field.
  private static func name(_ scanner: inout JSONScanner) -> String? {
    guard let name = scanner.string(), name.utf8.count <= maxTokenLength else { return nil }
    return name
  }

  private func entry() throws(JournalDecodingError) -> JournalEntry {
    switch kind {
    case "header":
      guard try text("format") == JournalEntry.formatName else {
        throw .malformed("it names another format")
      }
      let (version, generation) = (try integer("version"), try integer("generation"))
      guard version > 0, generation > 0 else { throw .malformed("it has no version") }
      return .header(version: version, generation: generation)
    case "insert":
      return .change(.insert(try record(), onDuplicate: try flag("replace") ? .replace : .keep))
    case "task": return .task(try keptTask())
    case "compacted":
      return .compacted(at: try date("at"), bytesBefore: try integer("before"))
    case "begin": return .begin(try id())
    case "succeed":
      return .change(.succeed(try lease(), at: try date("at"), keeps: try flag("keep")))
    case "retry": return .change(try retry())
    case "abandon":
      return .change(.abandon(try lease(), failure: try failure(), keeps: try flag("keep")))
    case "release": return .change(.release(try lease()))
    case "park": return .change(.park(try lease(), failure: try failure()))
    case "cancel":
      return .change(
        .cancel(.unclaimed(try id()), at: try date("at"), keeps: try flag("keep"))
      )
    case "pause": return .change(.pause(.unclaimed(try id())))
    case "resume": return .change(.resume(try id()))
    case "restart":
      return .change(.restart(.unclaimed(try id()), availableDate: try date("available")))
    case "remove": return .change(.remove(try id()))
    case "extend": return .change(.extend(try lease(), until: try date("until")))
    case "unpark": return .change(.unpark(name: try text("name")))
    case "prune": return .change(try prune())
    case "rebase": return .change(.rebase(try date("at")))
    case "interruption": return .interruption
    case "seal": return .seal
    default: throw .unknownKind(kind)
    }
  }

  // MARK: Changes

  private func retry() throws(JournalDecodingError) -> TaskChange {
    let count = try integer("retries")
    guard count >= 0 else { throw .malformed("its number of retries is negative") }
    return .retry(
      try lease(),
      availableDate: try date("available"),
      retryCount: count,
      failure: has("error") ? try failure() : nil
    )
  }

  private func prune() throws(JournalDecodingError) -> TaskChange {
    let count = has("latest") ? try integer("latest") : nil
    guard count.map({ $0 >= 0 }) ?? true else { throw .malformed("its count is negative") }
    return .prune(
      try state(),
      endedBefore: has("before") ? try date("before") : nil,
      keepingLatest: count
    )
  }

  private func keptTask() throws(JournalDecodingError) -> KeptTask {
    var scanner = JSONScanner(bytes, try range("place"))
    guard let position = scanner.sequenceNumber(), scanner.isAtEnd, position < .max >> 1 else {
      throw .malformed("its place can't be read")
    }
    return KeptTask(
      record: try record(),
      position: position,
      hasLostKey: try flag("keyless")
    )
  }

  private func record() throws(JournalDecodingError) -> TaskRecord {
    let state = has("state") ? try state() : .waiting
    guard state != .running else { throw .malformed("it adds a task that runs already") }
    let retryCount = has("retries") ? try integer("retries") : 0
    let interruptionCount = has("interruptions") ? try integer("interruptions") : 0
    guard retryCount >= 0, interruptionCount >= 0 else {
      throw .malformed("a count is negative")
    }
    return TaskRecord(
      id: try id(),
      name: try text("name"),
      payload: try payload(),
      priority: TaskQueue.Priority(rawValue: try integer("priority")),
      createdDate: try date("created"),
      maxRetries: try maxRetries(),
      usesBackoff: try !flag("backoff", "false"),
      uniqueKey: has("key") ? try text("key") : nil,
      tags: has("tags") ? try texts("tags") : [],
      timeLimit: has("limit") ? try duration("limit") : nil,
      expiryDate: has("expires") ? try date("expires") : nil,
      state: state,
      availableDate: try date("available"),
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: has("error") ? try text("error") : nil,
      failedDate: has("failed") ? try date("failed") : nil,
      finishedDate: has("ended") ? try date("ended") : nil
    )
  }

  private func maxRetries() throws(JournalDecodingError) -> RetryLimit {
    let range = try range("maxRetries")
    if bytes[range.lowerBound] == UInt8(ascii: "\"") {
      guard try text("maxRetries") == "always" else {
        throw .malformed("its number of retries can't be read")
      }
      return .alwaysRetry
    }
    let limit = try integer("maxRetries")
    guard limit >= 0 else { throw .malformed("its number of retries is negative") }
    return .atMost(limit)
  }

  private func payload() throws(JournalDecodingError) -> StoredPayload {
    let version = has("schema") ? try integer("schema") : 1
    let keys = Self.payloadFormats.filter { has($0.key) }
    guard let (key, format) = keys.first, keys.count == 1 else {
      throw .malformed(keys.isEmpty ? "it has no payload" : "it has more than one payload")
    }
    if format == .json {
      return StoredPayload(Array(bytes[try range(key)]), format: format, version: version)
    }
    guard let data = Data(base64Encoded: try text(key)) else {
      throw .malformed("its field '\(key)' is not base64")
    }
    return StoredPayload(Array(data), format: format, version: version)
  }

  private static let payloadFormats: [(key: String, format: StoredPayload.Format)] = [
    ("payload", .json), ("data", .binary), ("sealed", .sealedJSON), ("sealedData", .sealedBinary),
  ]

  private func lease() throws(JournalDecodingError) -> Lease { Lease(id: try id(), token: 0) }

  private func failure() throws(JournalDecodingError) -> TaskFailure {
    TaskFailure(reason: try text("error"), date: try date("failed"))
  }

  private func state() throws(JournalDecodingError) -> TaskState {
    guard let state = TaskState(rawValue: try text("state")) else {
      throw .malformed("its state is unknown")
    }
    return state
  }

  // MARK: Fields

  private func has(_ key: String) -> Bool { fields.contains { $0.key == key } }

  private func range(_ key: String) throws(JournalDecodingError) -> Range<Int> {
    guard let field = fields.first(where: { $0.key == key }) else {
      throw .malformed("it has no field '\(key)'")
    }
    return field.value
  }

  private func text(_ key: String) throws(JournalDecodingError) -> String {
    var scanner = JSONScanner(bytes, try range(key))
    guard let text = scanner.string() else {
      throw .malformed("its field '\(key)' is not a string")
    }
    return text
  }

  private func texts(_ key: String) throws(JournalDecodingError) -> Set<String> {
    var scanner = JSONScanner(bytes, try range(key))
    var texts: Set<String> = []
    var isList = scanner.skip("[")
    while isList, let text = scanner.string() {
      texts.insert(text)
      isList = scanner.skip(",")
      if !isList, scanner.skip("]"), scanner.isAtEnd { return texts }
    }
    throw .malformed("its field '\(key)' is not a list of strings")
  }

  private func duration(_ key: String) throws(JournalDecodingError) -> Duration {
    var scanner = JSONScanner(bytes, try range(key))
    guard scanner.skip("["), let seconds = number(&scanner).flatMap({ Int64($0) }),
      scanner.skip(","), let attoseconds = number(&scanner).flatMap({ Int64($0) }),
      scanner.skip("]"), scanner.isAtEnd
    else { throw .malformed("its field '\(key)' is not a duration") }
    return Duration(secondsComponent: seconds, attosecondsComponent: attoseconds)
  }

  private func id() throws(JournalDecodingError) -> TaskID {
    let text = bytes[try range("id")]
    guard text.first == UInt8(ascii: "\""), let id = TaskID(text: text.dropFirst().dropLast())
    else {
      throw .malformed("its identity can't be read")
    }
    return id
  }

  private func integer(_ key: String) throws(JournalDecodingError) -> Int {
    guard let value = Int(try number(key)) else {
      throw .malformed("its field '\(key)' is not an integer")
    }
    return value
  }

  private func date(_ key: String) throws(JournalDecodingError) -> Date {
    guard let seconds = Double(try number(key)), seconds.isFinite else {
      throw .malformed("its field '\(key)' is not a date")
    }
    return Date(timeIntervalSince1970: seconds)
  }

  /// Whether a field is there that is always of one value.
  private func flag(
    _ key: String,
    _ value: String = "true"
  ) throws(JournalDecodingError) -> Bool {
    guard has(key) else { return false }
    guard bytes[try range(key)].elementsEqual(value.utf8) else {
      throw .malformed("its field '\(key)' is not \(value)")
    }
    return true
  }

  /// The text of a number; empty if the field is something else.
  private func number(_ key: String) throws(JournalDecodingError) -> String {
    var scanner = JSONScanner(bytes, try range(key))
    guard let text = number(&scanner), scanner.isAtEnd else { return "" }
    return text
  }

  private func number(_ scanner: inout JSONScanner) -> String? {
    guard let range = scanner.number(), range.count <= Self.maxTokenLength else { return nil }
    return String(decoding: bytes[range], as: UTF8.self)
  }
}
