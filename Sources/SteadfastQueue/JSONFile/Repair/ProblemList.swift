/// Problems in the order of lines: all are counted, and the first are kept.
struct ProblemList: Sendable {
  private static var limit: Int { 1000 }

  private(set) var count = 0
  private(set) var first: [JSONFileReport.Problem] = []

  mutating func add(_ reason: String, line: Int? = nil, byte: Int? = nil) {
    add(JSONFileReport.Problem(line: line, byte: byte, reason: reason))
  }

  mutating func add(_ problem: JSONFileReport.Problem) {
    count += 1
    if first.count < Self.limit { first.append(problem) }
  }

  /// The problems of two lists, of which no line has one in both.
  func merged(with other: ProblemList) -> ProblemList {
    var merged = self
    merged.count += other.count
    merged.first = (first + other.first).sorted { ($0.line ?? .max) < ($1.line ?? .max) }
    if merged.first.count > Self.limit {
      merged.first.removeLast(merged.first.count - Self.limit)
    }
    return merged
  }

  /// Adds a problem in its place, unless there is one of its line.
  mutating func addIfNew(_ problem: JSONFileReport.Problem) {
    guard !first.contains(where: { $0.line == problem.line }) else { return }
    var list = ProblemList()
    list.add(problem)
    self = list.merged(with: self)
  }
}
