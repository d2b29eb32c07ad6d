extension RateLimits {
  /// The limits for the same tasks, which have one history.
  struct Scope: Sendable {
    /// The names of the tasks; `nil` for all of the queue.
    var names: [String]?
    var windows: [RateWindow]
    let key: (@Sendable (TaskRecord) -> String?)?
    /// How the names of the values begin that hold the histories.
    let prefix: String
    var description: String

    /// The name of the value with the history of a limit without keys.
    var valueName: String { prefix + (names.map { "/\($0[0])" } ?? "") }

    /// The name of the value with the history of a key.
    func valueName(ofKey number: UInt64) -> String {
      "\(prefix).\(number % RateLimits.partCount)" + (names.map { "/\($0[0])" } ?? "")
    }

    /// Adds a limit with the same first name.
    ///
    /// A history does not say which name a start had. So each limit of the scope counts the tasks
    /// of all names of any of them: too few may begin, never too many.
    mutating func add(_ limit: RateLimit, _ window: RateWindow) {
      windows.append(window)
      description += ", \(limit)"
      for name in limit.names ?? [] where !concerns(name) { names?.append(name) }
    }

    func concerns(_ name: String) -> Bool { names?.contains { $0.isExactly(name) } ?? true }
  }

  /// The history that a start of a task counts for.
  struct Place: Sendable, Hashable {
    let scope: Int
    let valueName: String
    let key: UInt64
  }

  /// Over how many values the keys of a limit are spread.
  private static let partCount: UInt64 = 256

  /// Returns the number that stands for a key in a store.
  ///
  /// Two keys with the same number would share a limit. Of a million keys, two have the same one
  /// with a probability of 3 in 100 million.
  static func number(of key: String) -> UInt64 { key.utf8.stableHash }

  /// How many tasks of a key have been put off until its next free start.
  struct Line: Sendable, Hashable {
    /// How many of them look again whenever a start is free.
    static let nearCount = 16
    /// In how many starts each of the others looks at least once.
    static let mostStarts = 32

    /// The date of the start.
    let date: Int64
    private var counts: [TaskQueue.Priority: Int] = [:]

    init(date: Int64) { self.date = date }

    /// Adds a task, and returns how many are ahead of it.
    mutating func add(_ priority: TaskQueue.Priority) -> Int {
      let ahead = counts.reduce(0) { $1.key >= priority ? $0 + $1.value : $0 }
      counts[priority, default: 0] += 1
      return ahead
    }
  }
}
