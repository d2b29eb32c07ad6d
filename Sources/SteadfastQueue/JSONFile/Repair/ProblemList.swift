/// Counts problems, and stores the first 1000 of them.
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

  /// Returns the problems of both lists, in the order of lines.
  ///
  /// No line may have a problem in both lists.
  func merged(with other: ProblemList) -> ProblemList {
    var merged = self
    merged.count += other.count
    merged.first = (first + other.first).sorted { ($0.line ?? .max) < ($1.line ?? .max) }
    if merged.first.count > Self.limit {
      merged.first.removeLast(merged.first.count - Self.limit)
    }
    return merged
  }

  /// Adds a problem in the order of lines, unless its line has one already.
  mutating func addIfNew(_ problem: JSONFileReport.Problem) {
    guard !first.contains(where: { $0.line == problem.line }) else { return }
    var list = ProblemList()
    list.add(problem)
    self = list.merged(with: self)
  }
}
