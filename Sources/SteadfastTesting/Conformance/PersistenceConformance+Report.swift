import SteadfastQueue

extension PersistenceConformance {
  /// The result of a check.
  public struct Report: Sendable, CustomStringConvertible {
    /// The requirements that the store does not meet.
    public internal(set) var failures: [Failure] = []
    /// The requirements that it meets.
    public internal(set) var passed: [Requirement] = []
    /// The requirements that were not checked, each with the reason.
    public internal(set) var skipped: [(requirement: Requirement, reason: String)] = []

    /// Whether the store meets every requirement that was checked.
    public var passes: Bool { failures.isEmpty }

    /// A readable text: the counts, each failure with its steps, and the unchecked requirements.
    public var description: String {
      let counts = "\(passed.count) requirements are met, \(failures.count) are not"
      let notes = skipped.map { "not checked: \($0.requirement.id), \($0.reason)" }
      return ([counts] + failures.map(\.description) + notes).joined(separator: "\n")
    }
  }

  /// A requirement that a store does not meet.
  public struct Failure: Sendable, CustomStringConvertible {
    /// The requirement.
    public let requirement: Requirement
    /// What the last step should have resulted in.
    public let expected: String
    /// What the last step resulted in.
    public let found: String
    /// The calls that led to the failure, with their answers, in order.
    ///
    /// Tasks are shown as numbers, and dates as seconds.
    public let steps: [String]

    /// The requirement, what was expected and found, and the steps, one on each line.
    public var description: String {
      let lines = steps.enumerated().map { "    \($0 + 1). \($1)" }
      return """
        \(requirement.id): \(requirement.sentence)
          expected: \(expected)
          found: \(found)
          after:
        \(lines.joined(separator: "\n"))
        """
    }
  }
}

extension PersistenceConformance.Failure {
  init(_ requirement: PersistenceConformance.Requirement, _ error: any Error, steps: [String]) {
    let mismatch = error as? ConformanceMismatch
    self.requirement = requirement
    self.steps = steps
    expected = mismatch?.expected ?? "no error"
    found = mismatch?.found ?? "the error: \(error)"
  }

  static func factory(_ error: any Error) -> Self {
    let requirement = PersistenceConformance.Requirement(
      "factory",
      "The closure that is handed to the check makes a store.",
      check: { _ in }
    )
    return Self(requirement, error, steps: [])
  }

  static func unknownExclusion(_ id: String) -> Self {
    let requirement = PersistenceConformance.Requirement(
      id,
      "What is excluded is a requirement.",
      check: { _ in }
    )
    let mismatch = ConformanceMismatch(
      expected: "an identifier among those of Requirement.all",
      found: "'\(id)', which no requirement has"
    )
    return Self(requirement, mismatch, steps: [])
  }
}

/// The error of an answer that differs from the expected one.
struct ConformanceMismatch: Error {
  let expected: String
  let found: String
}
