/// How long ended tasks are retained, with their ID, unique key and outcome.
///
/// A retained task can be looked up, and gives its outcome to callers that ask late. With both a
/// count and an age, a task is removed as soon as one of them says so. One that stands for others
/// (``TaskOptions/uniqueFor``) stays for its time. Tasks are removed when the queue begins to run,
/// and after every few hundred ended tasks that are retained. So a store may at times hold a few
/// more tasks than the count, and tasks that are older than the age.
public struct Retention: Sendable, Hashable {
  /// How many tasks are retained, the latest ones; `nil` for any number.
  public var maxCount: Int?
  /// The age up to which tasks are retained; `nil` for any age.
  ///
  /// The clock's date decides. If it is wrongly set forward, tasks are removed, and setting it back
  /// does not bring them back.
  public var maxAge: Duration?

  /// Makes a policy of a count, an age, or both; without either, ended tasks are retained forever.
  public init(maxCount: Int? = nil, maxAge: Duration? = nil) {
    self.maxCount = maxCount
    self.maxAge = maxAge
  }

  /// Tasks are removed as soon as they end.
  public static let none = Retention(maxCount: 0)
  /// Tasks are retained until the queue's store is removed.
  public static let forever = Retention()

  /// Whether tasks are retained at all when they end.
  var retains: Bool { maxCount.map { $0 > 0 } ?? true }
}
