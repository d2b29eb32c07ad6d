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
    padding = Self.padding(title, size)
  }

  /// Whether the job is unchanged.
  var isIntact: Bool { padding == Self.padding(title, padding.utf8.count) }

  private static func padding(_ title: String, _ size: Int) -> String {
    String(String(repeating: title + ",", count: size / (title.utf8.count + 1) + 1).prefix(size))
  }

  /// Creates the job with a number.
  ///
  /// Most jobs succeed, some only at the second attempt, and some never; most are small.
  init(_ prefix: String, number: Int) {
    let plan: Plan = number % 7 == 3 ? .fail : number % 5 == 2 ? .failOnce : .succeed
    self.init(
      title: "\(prefix).\(number)",
      plan: plan,
      size: number % 10 == 9 ? 60_000 : 20 + number % 300
    )
  }

  /// Returns a key that several jobs share.
  ///
  /// These jobs all succeed, so that the key becomes free.
  func uniqueKey(number: Int) -> String? {
    plan == .succeed && number % 6 == 1 ? "key\(number % 4)" : nil
  }
}

/// The error of a failing job.
struct Refusal: Error {}
