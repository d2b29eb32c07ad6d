/// Decides when to look for tasks without a handler, and which names to report.
///
/// A look costs two calls to the store: one for names, one for conditions. It is due when a run
/// begins for the first time, and after a task was added, resumed or restarted that has no handler
/// or an unknown condition. A queue whose tasks all have what they need never looks again.
struct UnhandledNotice: Sendable {
  /// The names that were reported.
  private(set) var saidNames: Set<String> = []
  private var hasRun = false
  /// Whether a look is due.
  private var isDue = false

  /// Returns whether the run that begins is the first one.
  mutating func isFirstRun() -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    isDue = false
    return true
  }

  /// Notes that a task of this name waits, and no handler is registered for it.
  mutating func waits(_ name: String) {
    if !saidNames.contains(name) { lookIsDue() }
  }

  /// Notes that a task waits for something that was not reported.
  mutating func lookIsDue() { isDue = true }

  /// Takes the look that is due, after a worker has found nothing to do.
  ///
  /// - Returns: Whether to look now. The look then counts as made.
  mutating func takeDue() -> Bool {
    defer { isDue = false }
    return isDue
  }

  /// Notes that tasks of these names wait for handlers.
  ///
  /// - Returns: The names that have not been reported before.
  mutating func namesToSay(of names: [String]) -> [String] {
    names.filter { saidNames.insert($0).inserted }
  }
}
