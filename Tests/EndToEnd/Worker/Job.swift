import SteadfastQueue

/// A task with a name of its own, and what its handler is to do with it.
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

  /// Whether nothing of it was changed.
  var isIntact: Bool { padding == Self.padding(title, padding.utf8.count) }

  private static func padding(_ title: String, _ size: Int) -> String {
    String(String(repeating: title + ",", count: size / (title.utf8.count + 1) + 1).prefix(size))
  }

  /// The job of a number: most of them succeed, some at the second attempt, some never; most are
  /// small.
  init(_ prefix: String, number: Int) {
    let plan: Plan = number % 7 == 3 ? .fail : number % 5 == 2 ? .failOnce : .succeed
    self.init(
      title: "\(prefix).\(number)",
      plan: plan,
      size: number % 10 == 9 ? 60_000 : 20 + number % 300
    )
  }

  /// A key that it shares with others; those succeed, so that the key is free again.
  func uniqueKey(number: Int) -> String? {
    plan == .succeed && number % 6 == 1 ? "key\(number % 4)" : nil
  }
}

/// What a job fails with.
struct Refusal: Error {}
