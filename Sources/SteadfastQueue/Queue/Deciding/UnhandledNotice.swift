/// Decides when to look for tasks without a handler, and which names to say: a value.
///
/// A look costs a call of the store. It is due when a run begins for the first time, and after a task
/// was added or restarted that may have no handler: a queue whose tasks all have one never looks again.
struct UnhandledNotice: Sendable {
  /// What was said.
  private(set) var saidNames: Set<String> = []
  private var hasRun = false
  private var isDue = false

  /// Whether the run that begins is the first one.
  mutating func isFirstRun() -> Bool {
    guard !hasRun else { return false }
    hasRun = true
    isDue = false
    return true
  }

  /// A task of this name was added while no handler was registered for it.
  mutating func added(_ name: String) {
    if !saidNames.contains(name) { isDue = true }
  }

  /// Tasks wait again of which it is not known whether they have handlers.
  mutating func restarted() { isDue = true }

  /// A worker has found nothing to do.
  ///
  /// - Returns: whether to look now; then the look is taken to be made.
  mutating func takeDue() -> Bool {
    defer { isDue = false }
    return isDue
  }

  /// Tasks of these names wait for handlers.
  ///
  /// - Returns: those names that have not been said.
  mutating func namesToSay(of names: [String]) -> [String] {
    names.filter { saidNames.insert($0).inserted }
  }
}
