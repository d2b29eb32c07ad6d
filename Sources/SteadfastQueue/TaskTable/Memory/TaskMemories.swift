/// What the tasks of a table remember, by their slots.
///
/// A copy shares its pages, like a ``Slab``, so that a compaction has one for little. Most tasks
/// remember nothing: a page without memories takes a word.
struct TaskMemories: Sendable {
  private static var pageSize: Int { 256 }

  private var pages: [[TaskMemory]] = []
  /// How many tasks of each page remember something.
  private var counts: [Int32] = []

  /// What the task of a slot remembers.
  subscript(slot: Int) -> TaskMemory {
    get {
      let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
      guard page < pages.count, !pages[page].isEmpty else { return TaskMemory() }
      return pages[page][index]
    }
    set {
      let page = slot / Self.pageSize
      guard !newValue.isEmpty || page < pages.count && !pages[page].isEmpty else { return }
      change(slot) { $0 = newValue }
    }
  }

  /// Changes what the task of a slot remembers, in place.
  mutating func change(_ slot: Int, _ body: (inout TaskMemory) -> Void) {
    let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
    makeRoom(for: page)
    if !pages[page][index].isEmpty { counts[page] -= 1 }
    body(&pages[page][index])
    if !pages[page][index].isEmpty { counts[page] += 1 }
    if counts[page] == 0 { pages[page] = [] }
  }

  private mutating func makeRoom(for page: Int) {
    if page >= pages.count {
      counts.append(contentsOf: repeatElement(0, count: page + 1 - pages.count))
      pages.append(contentsOf: repeatElement([], count: page + 1 - pages.count))
    }
    if pages[page].isEmpty {
      pages[page] = Array(repeating: TaskMemory(), count: Self.pageSize)
    }
  }
}
