import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// The invariants of a table between changes that this table breaks; empty if there are none.
  func brokenInvariants() -> [String] {
    var broken: [String] = []
    func check(_ isTrue: Bool, _ name: @autoclosure () -> String) {
      if !isTrue { broken.append(name()) }
    }

    let tasks = entries.slots.map { entries[$0] }
    for slot in entries.slots {
      let id = entries[slot].record.id
      check(self.slot(of: id) == slot, "\(id) is at its slot")
    }
    for entry in tasks {
      check(!entry.isReserved, "nothing is reserved")
      check(entry.isPlacedByState, "\(entry.record.id) is placed by its state")
      check(lanes[entry.lane].name == entry.record.name, "a task is in the lane of its name")
      check(entry.record.hasStorableForm, "\(entry.record.id) can be stored")
    }
    for state in TaskState.allCases {
      let count = tasks.count { $0.record.state == state }
      check(
        self.count(matching: TaskFilter(states: [state])) == count,
        "\(state) tasks are counted"
      )
    }
    check(readyCount == tasks.count { $0.place == .ready }, "ready tasks are counted")
    check(ids.elements() == tasks.map(\.record.id).sorted(), "all identities are in order")
    for (key, slot) in keys.holders {
      check(entries[slot].record.uniqueKey == key, "a key's holder bears it")
    }
    for (key, losers) in keys.displaced {
      check(!losers.isEmpty, "\(key) has losers if any are listed")
    }
    for slot in entries.slots {
      let id = entries[slot].record.id
      guard let key = entries[slot].record.uniqueKey else { continue }
      let isListed = keys.displaced[key]?.contains(slot) ?? false
      check(isListed == entries[slot].hasLostKey, "\(id) is listed if it has lost its key")
    }
    let losers = keys.displaced.values.reduce(0) { $0 + $1.count }
    let keyless = tasks.count { $0.hasLostKey && $0.record.uniqueKey != nil }
    check(losers == keyless, "nobody else is listed")
    for slot in entries.slots where !entries[slot].hasLostKey {
      let id = entries[slot].record.id
      guard let key = entries[slot].record.uniqueKey else { continue }
      check(keys.holder(of: key) == slot, "\(id) holds its key")
    }
    check(ended.stagedPrunes == 0, "no pruning is staged")
    return broken + brokenLines() + brokenOrder()
  }

  /// Whether each task stands in the line of its place, and nothing else does.
  private func brokenLines() -> [String] {
    var broken: [String] = []
    func check(_ line: [Int], _ tasks: [Int], _ name: String) {
      if Set(line) != Set(tasks) || line.count != tasks.count { broken.append("the line: \(name)") }
    }
    func at(_ place: Place) -> [Int] { entries.slots.filter { entries[$0].place == place } }

    check(waiting.elements().map(\.node.slot), at(.waiting), "waiting")
    check(
      ended.lines.values.flatMap { $0.elements().map(\.slot) },
      at(.finished),
      "ended"
    )
    let slotsByLane = Dictionary(grouping: entries.slots) { entries[$0].lane }
    for (name, lane) in lanes.indices {
      let inLane = slotsByLane[lane] ?? []
      if inLane.isEmpty || inLane.count != lanes[lane].taskCount {
        broken.append("lane \(name) is counted")
      }
      check(
        lanes[lane].ready.elements().map(\.node.slot),
        inLane.filter { entries[$0].place == .ready },
        "ready '\(name)'"
      )
      check(
        lanes[lane].parked.elements().map(\.slot),
        inLane.filter { entries[$0].place == .parked },
        "parked '\(name)'"
      )
    }
    let ranked = lanes.all.indices.compactMap { lane in
      lanes[lane].ready.first.map { RankedLane(first: $0, lane: lane) }
    }
    if lanes.ranking.elements() != ranked.sorted() { broken.append("lanes are ranked") }
    for slot in entries.slots {
      let hasLine = entries[slot].record.state != .running && entries[slot].place != .paused
      let id = entries[slot].record.id
      if entries[slot].isInLine != hasLine { broken.append("\(id) is in line if it is at rest") }
    }
    return broken
  }

  /// Checks that all waiting tasks are handed out, each task once, in order.
  private func brokenOrder() -> [String] {
    var table = self
    let expected = entries.slots.map { entries[$0] }.filter { $0.record.state == .waiting }
      .sorted {
        let (left, right) = ($0.record, $1.record)
        if left.priority != right.priority { return left.priority > right.priority }
        if left.availableDate != right.availableDate {
          return left.availableDate < right.availableDate
        }
        return $0.position < $1.position
      }
    let request = ClaimRequest(
      limit: .max,
      names: Dictionary(uniqueKeysWithValues: lanes.indices.keys.map { ($0, .max) }),
      now: Date(timeIntervalSince1970: .greatestFiniteMagnitude)
    )
    let claimed = table.claim(request).tasks.map(\.record.id)
    // Equal tasks may be in either order if the file gives them the same place.
    guard Set(expected.map(\.position)).count == expected.count else {
      return Set(claimed) == Set(expected.map(\.record.id)) && claimed.count == expected.count
        ? [] : ["all that waits is claimed"]
    }
    return claimed == expected.map(\.record.id) ? [] : ["all that waits is claimed in order"]
  }

  /// Everything that a file would have to say of its tasks: a line for each, in order.
  func everything() throws -> [String] {
    try entries.slots.map { slot in
      let entry = entries[slot]
      let line = try JournalBody(
        .task(
          KeptTask(record: entry.record, position: entry.position, hasLostKey: entry.hasLostKey)
        )
      )
      return String(decoding: line.bytes, as: UTF8.self)
    }.sorted()
  }

  /// As `everything()`, with the order of the tasks in place of the numbers that make it.
  func everythingInOrder() throws -> [String] {
    var table = self
    let inOrder = entries.slots.sorted { left, right in
      (entries[left].position, entries[left].record.id)
        < (entries[right].position, entries[right].record.id)
    }
    for (rank, slot) in inOrder.enumerated() { table.entries[slot].position = UInt64(rank) }
    return try table.everything()
  }
}

extension TaskTable {
  /// Whether a number is so large that no writer comes near it.
  ///
  /// Such a date may differ by minutes in billions of years when it is written again, and such a
  /// place may be the last one.
  var hasExtremes: Bool {
    entries.slots.contains { slot in
      let record = entries[slot].record
      let chosen = [record.createdDate, record.availableDate, record.expiryDate]
      let ends = [record.failedDate, record.finishedDate] + record.earlierFailures.map(\.date)
      let dates = chosen + ends
      return entries[slot].position > .max >> 2
        || dates.contains { abs($0?.timeIntervalSince1970 ?? 0) >= 0x1p60 }
    }
  }
}

extension TaskTable.Entry {
  fileprivate var isPlacedByState: Bool {
    switch record.state {
    case .waiting: place == .waiting || place == .ready
    case .running: if case .leased = place { true } else { false }
    case .parked: place == .parked
    case .paused: place == .paused
    case .succeeded, .abandoned, .cancelled: place == .finished
    }
  }
}

extension TaskRecord {
  fileprivate var hasStorableForm: Bool {
    var record = self
    if record.state == .running { record.state = .waiting }
    do {
      try record.checkForm()
      return true
    } catch {
      return false
    }
  }
}
