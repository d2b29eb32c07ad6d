/// How long ended tasks are kept, with their identity, unique key and outcome.
///
/// A kept task can be looked up, tells its outcome to late askers, and is still known to
/// ``UniquePolicy``. Where both a count and an age are given, a task leaves when either says so.
/// Tasks leave when the queue begins to run and every few hundred ended tasks that are kept, so a few
/// more than the count may be there at a given moment, and older ones than the age.
public struct Retention: Sendable, Hashable {
  /// The number of tasks kept, the latest; `nil` for any number.
  public var maxCount: Int?
  /// The age up to which they are kept; `nil` for any age.
  public var maxAge: Duration?

  /// Makes a policy of a count, an age, or both; without either, ended tasks are kept for ever.
  public init(maxCount: Int? = nil, maxAge: Duration? = nil) {
    self.maxCount = maxCount
    self.maxAge = maxAge
  }

  /// Tasks leave as soon as they end.
  public static let none = Retention(maxCount: 0)
  /// Tasks are kept until the queue's store is removed.
  public static let forever = Retention()

  /// Whether a task is kept at all when it ends.
  var keeps: Bool { maxCount.map { $0 > 0 } ?? true }
}
