import SystemFoundation

/// A field of a line, which is a JSON object.
///
/// The raw values are bit numbers in memory. The file contains the JSON names.
enum JournalField: Int, CaseIterable, Sendable {
  case id, name, priority, created, available, maxRetries, backoff, key, tags, limit, expires
  case role, into, uniqueUntil, latestDate, superseded
  case order, orderNumber, holds, requires
  case after, when, follower, afterAbandoned, afterCancelled, cause
  case members, membersSucceeded, membersFailed, except
  case schema, state, retries, interruptions, error, failed, earlier, putOff, from, ended
  case payload, data, sealed, sealedData
  case place, keyless, replace, keep, at, until, before, latest
  case format, version, generation
  case value, queue
  case awaits, forgets
  case metadata, knows
  case attempt, attempts

  var jsonName: String {
    switch self {
    case .id: "id"
    case .name: "name"
    case .priority: "priority"
    case .created: "created"
    case .available: "available"
    case .maxRetries: "maxRetries"
    case .backoff: "backoff"
    case .key: "key"
    case .role: "role"
    case .into: "into"
    case .uniqueUntil: "uniqueUntil"
    case .latestDate: "latestDate"
    case .superseded: "superseded"
    case .order: "order"
    case .orderNumber: "orderNumber"
    case .holds: "holds"
    case .requires: "requires"
    case .after: "after"
    case .when: "when"
    case .follower: "follower"
    case .afterAbandoned: "afterAbandoned"
    case .afterCancelled: "afterCancelled"
    case .cause: "cause"
    case .members: "members"
    case .membersSucceeded: "membersSucceeded"
    case .membersFailed: "membersFailed"
    case .except: "except"
    case .tags: "tags"
    case .limit: "limit"
    case .expires: "expires"
    case .schema: "schema"
    case .state: "state"
    case .retries: "retries"
    case .interruptions: "interruptions"
    case .error: "error"
    case .failed: "failed"
    case .earlier: "earlier"
    case .putOff: "putOff"
    case .from: "from"
    case .ended: "ended"
    case .payload: "payload"
    case .data: "data"
    case .sealed: "sealed"
    case .sealedData: "sealedData"
    case .place: "place"
    case .keyless: "keyless"
    case .replace: "replace"
    case .keep: "keep"
    case .at: "at"
    case .until: "until"
    case .before: "before"
    case .latest: "latest"
    case .format: "format"
    case .version: "version"
    case .generation: "generation"
    case .value: "value"
    case .queue: "queue"
    case .awaits: "awaits"
    case .forgets: "forgets"
    case .metadata: "metadata"
    case .knows: "knows"
    case .attempt: "attempt"
    case .attempts: "attempts"
    }
  }

  static let table = WordTable(allCases.map { ($0.jsonName, $0) })
}

/// A set of fields, as bits, to check in one step whether a line has any of them.
struct JournalFieldSet: Sendable {
  let bits: UInt64

  init(_ fields: [JournalField]) { bits = fields.reduce(0) { $0 | 1 << UInt64($1.rawValue) } }
}

/// The kind of a line.
enum JournalKind: String, CaseIterable, Sendable {
  case header, task, kept, compacted, begin, interruption, seal
  case insert, add, succeed, retry, abandon, release, park, cancel, pause, resume, restart
  case reschedule, update, remove, extend, unpark, prune, rebase
  case value
  case remember, suspend, complete, memory
  case create, stored, edit

  /// Whether a line of this kind has metadata, as no line of another kind has.
  ///
  /// A version of this library that does not know metadata refuses these kinds. In a line of
  /// another kind, it would ignore the field.
  var hasMetadata: Bool { self == .create || self == .stored || self == .edit }

  static let table = WordTable(allCases.map { ($0.rawValue, $0) })
}

/// Finds the fields of a line, and reads the values that are requested.
///
/// It contains the fields of one line at a time: call ``readFields(in:)`` for each line.
struct JournalFields {
  /// The maximum number of fields in a line: more than twice as many as are ever written.
  private static let maxCount = 64
  /// The maximum length of a number, a kind, or the name of a field, in bytes.
  ///
  /// It is more than twice the length of any that is written. It limits the length of error
  /// messages.
  private static let maxTokenLength = 64

  let bytes: [UInt8]
  private let names = JournalField.table
  private let kinds = JournalKind.table
  /// The range of each field's value in `bytes`; only valid for the fields that the line has.
  private var values = [Range<Int>](repeating: 0..<0, count: JournalField.allCases.count)
  /// The fields that the line has: one bit for each field.
  private var present: UInt64 = 0
  /// The date that was read last, because the next one is often the same.
  private var lastDate: (range: Range<Int>, date: Date)?
  /// The names of the line's fields that this version does not know.
  private var others: [String] = []

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  /// Finds the fields of a line, and returns the line's kind.
  mutating func readFields(in body: Range<Int>) throws(JournalDecodingError) -> JournalKind {
    present = 0
    if !others.isEmpty { others = [] }
    var scanner = JSONScanner(bytes, body)
    guard scanner.skip("\"k\":") else { throw .malformed("it has no kind") }
    let kind = scanner.readWord(in: kinds)
    var otherKind: String?
    if kind == nil {
      otherKind = Self.readName(from: &scanner)
      guard otherKind != nil else { throw .malformed("it has no kind") }
    }
    while scanner.skip(UInt8(ascii: ",")) { try readField(from: &scanner) }
    guard scanner.skip(UInt8(ascii: "}")), scanner.isAtEnd else {
      throw .malformed("it does not end with its closing brace")
    }
    if let kind { return kind }
    // A known kind may have been written with escapes.
    let text = otherKind ?? ""
    guard let kind = JournalKind(rawValue: text) else { throw .unknownKind(text) }
    return kind
  }

  private mutating func readField(from scanner: inout JSONScanner) throws(JournalDecodingError) {
    var field = scanner.readWord(in: names)
    var other: String?
    if field == nil {
      other = Self.readName(from: &scanner)
      // The name of a known field may have been written with escapes.
      field = other.flatMap { PackedWord($0.utf8) }.flatMap { names[$0] }
    }
    guard field != nil || other != nil, scanner.skip(UInt8(ascii: ":")),
      let value = scanner.skipValue()
    else { throw .malformed("its fields can't be read") }
    let key = field?.jsonName ?? other ?? ""
    guard !(field.map(has) ?? others.contains(key)) else {
      throw .malformed("it has the field '\(key)' twice")
    }
    guard present.nonzeroBitCount + others.count < Self.maxCount else {
      throw .malformed("it has too many fields")
    }
    if let field {
      present |= 1 << UInt64(field.rawValue)
      values[field.rawValue] = value
    } else {
      others.append(key)
    }
  }

  private static func readName(from scanner: inout JSONScanner) -> String? {
    guard let name = scanner.readString(), name.utf8.count <= maxTokenLength else { return nil }
    return name
  }

  // MARK: Values

  func has(_ field: JournalField) -> Bool { present & 1 << UInt64(field.rawValue) != 0 }

  /// Returns whether the line has any of the fields in a set.
  func hasAny(_ fields: JournalFieldSet) -> Bool { present & fields.bits != 0 }

  func range(of field: JournalField) throws(JournalDecodingError) -> Range<Int> {
    guard has(field) else { throw .malformed("it has no field '\(field.jsonName)'") }
    return values[field.rawValue]
  }

  func string(of field: JournalField) throws(JournalDecodingError) -> String {
    var scanner = JSONScanner(bytes, try range(of: field))
    guard let text = scanner.readString() else {
      throw .malformed("its field '\(field.jsonName)' is not a string")
    }
    return text
  }

  /// Reads bytes that are stored as a Base64 string.
  func bytes(of field: JournalField) throws(JournalDecodingError) -> [UInt8] {
    guard let data = Data(base64Encoded: try string(of: field)) else {
      throw .malformed("its field '\(field.jsonName)' is not base64")
    }
    return Array(data)
  }

  /// Reads the value that a line sets; `nil` if the line removes the value.
  func readStoredValue() throws(JournalDecodingError) -> [UInt8]? {
    guard has(.value) else { return has(.data) ? try bytes(of: .data) : nil }
    guard !has(.data) else { throw .malformed("it has more than one value") }
    return Array(try string(of: .value).utf8)
  }

  func strings(of field: JournalField) throws(JournalDecodingError) -> Set<String> {
    Set(try stringList(of: field))
  }

  /// Reads a list of one or more strings, in order.
  func stringList(of field: JournalField) throws(JournalDecodingError) -> [String] {
    var scanner = JSONScanner(bytes, try range(of: field))
    var texts: [String] = []
    var isList = scanner.skip("[")
    while isList, let text = scanner.readString() {
      texts.append(text)
      isList = scanner.skip(",")
      if !isList, scanner.skip("]"), scanner.isAtEnd { return texts }
    }
    throw .malformed("its field '\(field.jsonName)' is not a list of strings")
  }

  /// Reads a list of IDs; returns an empty list if the line does not have the field.
  func idsIfPresent(of field: JournalField) throws(JournalDecodingError) -> [TaskID] {
    guard has(field) else { return [] }
    var ids: [TaskID] = []
    for text in try stringList(of: field) {
      guard let id = TaskID(text) else {
        throw .malformed("its field '\(field.jsonName)' has an ID that can't be read")
      }
      ids.append(id)
    }
    return ids
  }

  /// Reads a list of strings, which may be empty.
  func possiblyEmptyStrings(of field: JournalField) throws(JournalDecodingError) -> Set<String> {
    var scanner = JSONScanner(bytes, try range(of: field))
    if scanner.skip("[]"), scanner.isAtEnd { return [] }
    return try strings(of: field)
  }

  /// Reads an object whose values are strings, and which may be empty.
  func stringPairs(of field: JournalField) throws(JournalDecodingError) -> [String: String] {
    var scanner = JSONScanner(bytes, try range(of: field))
    if scanner.skip("{}"), scanner.isAtEnd { return [:] }
    var pairs: [String: String] = [:]
    var isObject = scanner.skip("{")
    while isObject, let key = scanner.readString(), scanner.skip(":"),
      let value = scanner.readString()
    {
      guard pairs.updateValue(value, forKey: key) == nil else {
        throw .malformed("its field '\(field.jsonName)' has the same key twice")
      }
      isObject = scanner.skip(",")
      if !isObject, scanner.skip("}"), scanner.isAtEnd { return pairs }
    }
    throw .malformed("its field '\(field.jsonName)' is not an object of strings")
  }

  /// Reads a list of one or more failures.
  ///
  /// Each failure is a list of its reason and its date.
  func failures(of field: JournalField) throws(JournalDecodingError) -> [TaskFailure] {
    var scanner = JSONScanner(bytes, try range(of: field))
    var failures: [TaskFailure] = []
    var isList = scanner.skip("[")
    while isList, scanner.skip("["), let reason = scanner.readString(), scanner.skip(","),
      let date = scanner.skipNumber().flatMap(date(in:)), scanner.skip("]")
    {
      failures.append(TaskFailure(reason: reason, date: date))
      isList = scanner.skip(",")
      if !isList, scanner.skip("]"), scanner.isAtEnd { return failures }
    }
    throw .malformed("its field '\(field.jsonName)' is not a list of failures")
  }

  func duration(of field: JournalField) throws(JournalDecodingError) -> Duration {
    var scanner = JSONScanner(bytes, try range(of: field))
    guard scanner.skip("["), let seconds = readNumber(from: &scanner).flatMap({ Int64($0) }),
      scanner.skip(","), let attoseconds = readNumber(from: &scanner).flatMap({ Int64($0) }),
      scanner.skip("]"), scanner.isAtEnd
    else { throw .malformed("its field '\(field.jsonName)' is not a duration") }
    return Duration(secondsComponent: seconds, attosecondsComponent: attoseconds)
  }

  func id(of field: JournalField = .id) throws(JournalDecodingError) -> TaskID {
    let text = bytes[try range(of: field)]
    guard text.first == UInt8(ascii: "\""), let id = TaskID(text: text.dropFirst().dropLast())
    else {
      throw .malformed("its ID can't be read")
    }
    return id
  }

  func integer(of field: JournalField) throws(JournalDecodingError) -> Int {
    let range = try range(of: field)
    if range.count == 1, let digit = bytes[range.lowerBound].decimalDigit { return Int(digit) }
    guard let value = Int(number(in: range)) else {
      throw .malformed("its field '\(field.jsonName)' is not an integer")
    }
    return value
  }

  mutating func date(of field: JournalField) throws(JournalDecodingError) -> Date {
    let range = try range(of: field)
    if let last = lastDate, bytes[range].elementsEqual(bytes[last.range]) { return last.date }
    guard let date = date(in: range) else {
      throw .malformed("its field '\(field.jsonName)' is not a date")
    }
    lastDate = (range, date)
    return date
  }

  /// Reads a date, which is stored as the number of seconds since 1970.
  private func date(in range: Range<Int>) -> Date? {
    guard let seconds = Double(decimal: bytes[range]) ?? Double(number(in: range)),
      seconds.isFinite
    else { return nil }
    return Date(timeIntervalSince1970: seconds)
  }

  /// Reads a field that is `true` or `false`.
  ///
  /// For any other value, the error says that the value is not `false`.
  func boolean(of field: JournalField) throws(JournalDecodingError) -> Bool {
    var scanner = JSONScanner(bytes, try range(of: field))
    if scanner.skip("true"), scanner.isAtEnd { return true }
    return try !hasFlag(field, withValue: "false")
  }

  /// Returns whether the line has a field.
  ///
  /// Throws an error if the field has a value other than `value`.
  func hasFlag(
    _ field: JournalField,
    withValue value: StaticString = "true"
  ) throws(JournalDecodingError) -> Bool {
    guard has(field) else { return false }
    var scanner = JSONScanner(bytes, try range(of: field))
    guard scanner.skip(value), scanner.isAtEnd else {
      throw .malformed("its field '\(field.jsonName)' is not \(value)")
    }
    return true
  }

  /// Reads a field that is `true` or `false`.
  ///
  /// For any other value, the error says that the value is neither.
  func trueOrFalse(of field: JournalField) throws(JournalDecodingError) -> Bool {
    var scanner = JSONScanner(bytes, try range(of: field))
    let isTrue = scanner.skip("true")
    guard isTrue || scanner.skip("false"), scanner.isAtEnd else {
      throw .malformed("its field '\(field.jsonName)' is neither true nor false")
    }
    return isTrue
  }

  /// Returns the number in a range as a string; returns an empty string if there is anything else.
  private func number(in range: Range<Int>) -> String {
    var scanner = JSONScanner(bytes, range)
    guard let text = readNumber(from: &scanner), scanner.isAtEnd else { return "" }
    return text
  }

  private func readNumber(from scanner: inout JSONScanner) -> String? {
    guard let range = scanner.skipNumber(), range.count <= Self.maxTokenLength else { return nil }
    return String(decoding: bytes[range], as: UTF8.self)
  }
}

extension JournalFields {
  /// Reads the dependencies of a task; returns `nil` if the line has none.
  func readDependencies() throws(JournalDecodingError) -> TaskDependencies? {
    guard hasAny(Self.dependencyFields) else { return nil }
    var dependencies = TaskDependencies(
      on: Set(try idsIfPresent(of: .after)),
      rule: try readRule(),
      follower: has(.follower) ? try id(of: .follower) : nil,
      cause: has(.cause) ? try id(of: .cause) : nil,
      batch: has(.members) ? try readBatchProgress() : nil
    )
    for id in try idsIfPresent(of: .afterAbandoned) { dependencies.failed[id] = .abandoned }
    for id in try idsIfPresent(of: .afterCancelled) { dependencies.failed[id] = .cancelled }
    return dependencies
  }

  private static let dependencyFields = JournalFieldSet([
    .after, .when, .follower, .cause, .members, .afterAbandoned, .afterCancelled,
  ])

  private func readRule() throws(JournalDecodingError) -> DependencyRule {
    guard has(.when) else { return .allSucceeded }
    guard let rule = DependencyRule(rawValue: try string(of: .when)) else {
      throw .malformed("the rule for its dependencies is unknown")
    }
    return rule
  }

  private func readBatchProgress() throws(JournalDecodingError) -> BatchProgress {
    let batch = BatchProgress(
      total: try integer(of: .members),
      succeeded: try integer(of: .membersSucceeded),
      failed: try integer(of: .membersFailed)
    )
    guard batch.isPossible else { throw .malformed("the progress of its batch is impossible") }
    return batch
  }
}

/// A hash table that finds the meaning of a word in a file, without creating a string from the
/// bytes.
///
/// A word is compared as a single number. The table uses open addressing, and is at most half full.
///
/// With this table, `JournalFields` and `Double(decimal:)`, reading 50,000 tasks took 986 million
/// instructions, instead of 2,313 million with strings, an array for each line, and `strtod`.
struct WordTable<Word: Sendable>: Sendable {
  private var slots: [(word: PackedWord, meaning: Word)?]

  /// - Parameter words: The words, without duplicates; at most half as many as there are slots.
  init(_ words: [(text: String, meaning: Word)]) {
    slots = Array(repeating: nil, count: 1 << PackedWord.hashBits)
    precondition(words.count * 2 <= slots.count, "the table would be too full")
    for (text, meaning) in words {
      guard let word = PackedWord(text.utf8) else { preconditionFailure("'\(text)' is no word") }
      var slot = word.hash
      while slots[slot] != nil { slot = (slot + 1) % slots.count }
      slots[slot] = (word, meaning)
    }
  }

  subscript(word: PackedWord) -> Word? {
    var slot = word.hash
    while let found = slots[slot] {
      if found.word == word { return found.meaning }
      slot = (slot + 1) % slots.count
    }
    return nil
  }
}

/// A word of up to 16 ASCII characters, packed into a number.
///
/// The word contains no backslashes, and no control characters below 0x20.
struct PackedWord: Equatable, Sendable {
  static var maxLength: Int { 16 }
  static var hashBits: Int { 7 }

  private var bits: UInt128 = 0

  init() {}

  /// Packs characters; returns `nil` if there are too many, or one is not allowed.
  init?(_ text: some Collection<UInt8>) {
    guard text.count <= Self.maxLength else { return nil }
    for byte in text {
      guard append(byte) else { return nil }
    }
  }

  /// Appends a character; returns `false` if the character is not allowed in a word.
  ///
  /// The caller ensures that the word does not become too long.
  mutating func append(_ byte: UInt8) -> Bool {
    guard byte >= 0x20, byte < 0x80, byte != UInt8(ascii: "\\") else { return false }
    bits = bits << 8 | UInt128(byte)
    return true
  }

  /// The hash of the word, which has `hashBits` bits.
  ///
  /// This is Knuth's multiplicative hashing ("The Art of Computer Programming", section 6.4).
  var hash: Int {
    let folded = UInt64(truncatingIfNeeded: bits ^ bits >> 64)
    return Int((folded &* 0x9E37_79B9_7F4A_7C15) >> UInt64(64 - Self.hashBits))
  }
}
