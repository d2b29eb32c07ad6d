/// What a line tells.
enum JournalKind: String, CaseIterable, Sendable {
  case header, task, compacted, begin, interruption, seal
  case insert, succeed, retry, abandon, release, park, cancel, pause, resume, restart
  case reschedule, update, remove, extend, unpark, prune, rebase

  static let table = WordTable(allCases.map { ($0.rawValue, $0) })
}
