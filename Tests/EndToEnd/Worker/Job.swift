import SteadfastQueue

/// A task with a unique title and a plan for its handler.
struct Job: TaskPayload {
  enum Plan: String, Codable, Sendable {
    case succeed, failOnce, fail
  }

  let title: String
  let plan: Plan
  private let padding: String

  init(title: String, plan: Plan, size: Int) {
    self.title = title
    self.plan = plan
    padding = Self.padding(for: title, size: size)
  }

  /// Whether the job's padding is the padding that the job was created with.
  var isIntact: Bool { padding == Self.padding(for: title, size: padding.utf8.count) }

  private static func padding(for title: String, size: Int) -> String {
    String(String(repeating: title + ",", count: size / (title.utf8.count + 1) + 1).prefix(size))
  }

  /// Creates the job with a number.
  ///
  /// Most jobs succeed, some of them only at the second attempt, and some jobs never do. Most jobs
  /// are small.
  init(_ prefix: String, number: Int) {
    let plan: Plan = number % 7 == 3 ? .fail : number % 5 == 2 ? .failOnce : .succeed
    self.init(
      title: "\(prefix).\(number)",
      plan: plan,
      size: number % 10 == 9 ? 60_000 : 20 + number % 300
    )
  }

  /// Returns the unique key of this job, which it shares with other jobs; `nil` for most jobs.
  ///
  /// All jobs with such a key succeed, so that the key becomes free.
  func uniqueKey(number: Int) -> String? {
    plan == .succeed && number % 6 == 1 ? "key\(number % 4)" : nil
  }
}

/// The error of a failing job.
struct Refusal: Error {}
