/// The fields of a line's body.
///
/// The raw values are used in memory only. The file holds the texts.
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

  /// The field's name in the file.
  var text: String {
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
    }
  }

  static let table = WordTable(allCases.map { ($0.text, $0) })
}

/// Some fields, which are looked for all at once.
struct JournalFieldSet: Sendable {
  let bits: UInt64

  init(_ fields: [JournalField]) { bits = fields.reduce(0) { $0 | 1 << UInt64($1.rawValue) } }
}

/// The kinds of lines.
enum JournalKind: String, CaseIterable, Sendable {
  case header, task, kept, compacted, begin, interruption, seal
  case insert, add, succeed, retry, abandon, release, park, cancel, pause, resume, restart
  case reschedule, update, remove, extend, unpark, prune, rebase
  case value
  case remember, suspend, complete, memory

  static let table = WordTable(allCases.map { ($0.rawValue, $0) })
}
