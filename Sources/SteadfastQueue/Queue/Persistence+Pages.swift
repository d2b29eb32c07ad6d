/// Looks at all tasks of a store, some at a time.
extension Persistence {
  /// How many tasks are listed, or changed, at a time.
  ///
  /// They are few enough that other users of the store notice no delay.
  private var pageSize: Int { 500 }

  /// Calls the body with the tasks that match a filter and exist now, a page at a time.
  ///
  /// Callers that add tasks all the time can't make it go on for ever.
  ///
  /// - Parameters:
  ///   - filter: which tasks are listed.
  ///   - id: the first page begins after this ID.
  ///   - own: an ID that is not less than that of most tasks in the store.
  ///   - body: gets the tasks of a page, of which there is at least one.
  /// - Throws: What the store and the body throw.
  func forEachPage(
    of filter: TaskFilter,
    after id: TaskID?,
    tasksUpTo own: TaskID,
    _ body: ([TaskRecord]) async throws -> Void
  ) async throws {
    // A filter with IDs or unique keys lists few tasks: new ones can't make the loop go on.
    let isClosed = filter.ids != nil || filter.uniqueKeys != nil
    let end = isClosed ? TaskID.last : try await lastID(inQueue: filter.queue, orUpTo: own)
    var last = id
    while true {
      let page = try await tasks(matching: filter, after: last, limit: pageSize)
      let records = page.filter { $0.id <= end }
      // A store may return fewer than it was asked for, so only an empty page is the last one.
      guard let id = records.last?.id else { return }
      try await body(records)
      guard records.count == page.count else { return }
      last = id
    }
  }

  /// Returns an ID that is not less than that of any task in the store.
  ///
  /// It is less than the IDs of most tasks that are enqueued from now on. Usually that takes one
  /// look at the store. If a clock was ahead, or is ahead in another process, it takes a few dozen.
  private func lastID(inQueue queue: String?, orUpTo own: TaskID) async throws -> TaskID {
    guard var last = try await self.id(after: own, inQueue: queue) else { return own }
    // Growing steps lead beyond all tasks. Then a binary search finds the last task.
    var end = UInt64.max
    var step: UInt64 = 1 << 16
    while end == .max, last.high < .max - step {
      if let next = try await self.id(
        after: TaskID(high: last.high + step, low: .max),
        inQueue: queue
      ) {
        last = next
        step = step > .max / 4 ? step : step * 2
      } else {
        end = last.high + step
      }
    }
    while last.high < end {
      let middle = last.high + (end - last.high) / 2
      if let next = try await self.id(after: TaskID(high: middle, low: .max), inQueue: queue),
        next.high <= end
      {
        last = next
      } else {
        end = middle
      }
    }
    return TaskID(high: end, low: .max)
  }

  /// Returns the ID of the first task after another.
  private func id(after id: TaskID, inQueue queue: String?) async throws -> TaskID? {
    try await tasks(matching: TaskFilter(queue: queue), after: id, limit: 1).first?.id
  }
}

extension TaskID {
  /// The greatest possible ID.
  fileprivate static var last: TaskID { TaskID(high: .max, low: .max) }
}
