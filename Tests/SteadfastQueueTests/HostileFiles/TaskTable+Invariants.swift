import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// Describes the invariants that this table violates.
  ///
  /// They must hold between changes.
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
      let lane = lanes[entry.lane]
      let isInLane =
        lane.name == entry.record.name && lane.requirements == entry.record.requirements
      check(isInLane, "a task is in the lane of its name, its conditions and its payload's version")
      check(entry.record.hasStorableForm, "\(entry.record.id) can be stored")
    }
    for state in TaskState.allCases {
      let count = tasks.count { $0.record.state == state }
      check(
        self.count(matching: TaskFilter(queue: nil, states: [state])) == count,
        "\(state) tasks are counted"
      )
    }
    check(ids.elements() == tasks.map(\.record.id).sorted(), "all IDs are in order")
    var withRole = 0
    for key in keys.keys {
      for roles in keys.roles(of: key) {
        check(!roles.isEmpty, "\(key) has roles if it is listed")
        check(roles.holder != nil || roles.successor == nil, "no successor is without a holder")
        for (slot, role) in [(roles.holder, UniqueKeyRole.holder), (roles.successor, .successor)] {
          guard let slot else { continue }
          withRole += 1
          let record = entries[slot].record
          let isRight = record.uniqueKey == key && record.keyRole == role
          check(isRight && nameLane(of: slot) == roles.lane, "\(record.id) has its role")
        }
        guard let recent = roles.recent else { continue }
        let record = entries[recent].record
        check(
          record.state == .succeeded && record.uniqueUntil != nil,
          "\(key) is unique until a date"
        )
      }
    }
    check(withRole == tasks.count { $0.record.keyRole != nil }, "all roles are listed")
    for slot in entries.slots {
      let record = entries[slot].record
      guard let key = record.uniqueKey else {
        check(record.keyRole == nil, "a task without a key has no role")
        continue
      }
      let isListed = keys.withoutRole[ExactText(key)]?.contains(slot) ?? false
      check(isListed == (record.keyRole == nil), "\(record.id) is listed if it has no role")
      let hasNone = record.state.isFinished || entries[slot].isKeyless
      check(hasNone == (record.keyRole == nil), "\(record.id) has no role if it has ended")
    }
    let count = keys.withoutRole.values.reduce(0) { $0 + $1.count }
    let expected = tasks.count { $0.record.uniqueKey != nil && $0.record.keyRole == nil }
    check(count == expected, "no other task is listed")
    check(ended.stagedPrunes == 0, "no pruning is staged")
    check(values.staged.isEmpty, "no value is staged")
    let valueSize = values.committed.values.reduce(0) { $0 + $1.byteCount }
    check(values.byteCount == valueSize, "the bytes of values are counted")
    return broken + brokenMemoryInvariants() + brokenLines() + brokenClaimOrder()
      + brokenOrderKeyHeads() + brokenDependencyInvariants()
  }

  /// Checks that each task is in the list for its state, and that the lists contain nothing else.
  private func brokenLines() -> [String] {
    var broken: [String] = []
    func check(_ line: [Int], _ tasks: [Int], _ name: String) {
      if Set(line) != Set(tasks) || line.count != tasks.count { broken.append("the line: \(name)") }
    }
    func at(_ place: Place) -> [Int] { entries.slots.filter { entries[$0].place == place } }

    check(waiting.elements().map(\.node.slot), at(.waiting), "waiting")
    check(
      TaskState.allCases.flatMap { ended.nodes(in: $0).map(\.slot) },
      at(.finished),
      "ended"
    )
    let slotsByLane = Dictionary(grouping: entries.slots) { entries[$0].lane }
    let slotsByName = Dictionary(grouping: entries.slots) { nameLane(of: $0) }
    for (lane, inLane) in slotsByLane {
      check(
        lanes[lane].ready.elements().map(\.node.slot),
        inLane.filter { entries[$0].place == .ready },
        "ready in lane \(lane)"
      )
    }
    for (name, lane) in lanes.queues.flatMap(\.indices) {
      let inLane = slotsByName[lane] ?? []
      if inLane.isEmpty || inLane.count != lanes[lane].taskCount {
        broken.append("lane \(name.text) is counted")
      }
      check(
        lanes[lane].parked.elements().map(\.slot),
        inLane.filter { entries[$0].place == .parked },
        "parked '\(name.text)'"
      )
      check(
        lanes[lane].held.elements().map(\.node.slot),
        inLane.filter { entries[$0].place == .held && entries[$0].record.state == .waiting },
        "held '\(name.text)'"
      )
      check(
        lanes[lane].waking.elements().map(\.node.slot),
        inLane.filter { entries[$0].place == .ready && entries[$0].record.state == .suspended },
        "waking '\(name.text)'"
      )
      let records = inLane.map { entries[$0].record }
      let retrying = records.count { $0.state == .waiting && $0.isPostponed }
      let counts = lanes[lane].stateCounts
      if lanes[lane].retryingCount != retrying
        || TaskState.allCases.contains(where: { state in
          counts[state] != records.count { $0.state == state }
        })
      {
        broken.append("the tasks '\(name.text)' are counted")
      }
    }
    for (number, queue) in lanes.queues.enumerated() {
      let ranked = lanes.all.indices.filter { lanes[$0].queue == number }.compactMap { lane in
        lanes[lane].ready.first.map { RankedLane(first: $0, lane: lane) }
      }
      if queue.ranking.elements() != ranked.sorted() { broken.append("lanes are ranked") }
      let records = entries.slots.map { entries[$0].record }.filter { $0.queue == queue.name }
      for state in TaskState.allCases {
        if lanes.count(of: [state], inQueue: number) != records.count(where: { $0.state == state })
        {
          broken.append("the tasks of the queue '\(queue.name)' are counted")
        }
      }
    }
    for slot in entries.slots
    where lanes.queues[queueNumber(of: slot)].name != entries[slot].record.queue {
      broken.append("\(entries[slot].id) is in the lane of its queue")
    }
    for slot in entries.slots {
      let place = entries[slot].place
      let state = entries[slot].record.state
      let isInNoLine =
        [Place.paused, .suspended].contains(place) || place == .held && state != .waiting
      let hasLine = state != .running && !isInNoLine
      let id = entries[slot].record.id
      if entries[slot].isInList != hasLine { broken.append("\(id) is in line if it is at rest") }
    }
    return broken
  }

  /// Checks that the head of each order key is its running task or, if none runs, its first task.
  private func brokenOrderKeyHeads() -> [String] {
    var broken: [String] = []
    let ordered = entries.slots.filter { entries[$0].record.orderKey != nil }
    for slot in entries.slots where !ordered.contains(slot) {
      if entries[slot].isOrdered || entries[slot].isBehindHead {
        broken.append("\(slot) has a key")
      }
    }
    let members = ordered.filter { slot in
      let record = entries[slot].record
      return !record.state.isFinished || record.blocksOrder
    }
    for slot in ordered where entries[slot].isOrdered != members.contains(slot) {
      broken.append("\(entries[slot].record.id) is in the order if it has not ended")
    }
    let byKey = Dictionary(grouping: members) { slot in
      OrderKeys.Key(
        queue: queueNumber(of: slot),
        text: ExactText(entries[slot].record.orderKey ?? "")
      )
    }
    if Set(order.keys) != Set(byKey.keys) { broken.append("each order key has a task") }
    for (key, slots) in byKey {
      let inOrder = slots.sorted {
        (entries[$0].record.orderNumber, $0) < (entries[$1].record.orderNumber, $1)
      }
      let expected = slots.first { entries[$0].record.state == .running } ?? inOrder[0]
      let others = inOrder.filter { $0 != expected }
      let isRight =
        order.head(of: key)?.slot == expected && order.others(of: key).map(\.slot) == others
        && slots.allSatisfy { entries[$0].isBehindHead == ($0 != expected) }
      if !isRight { broken.append("the head of '\(key.text.text)'") }
    }
    return broken
  }

  /// Checks that a claim returns all waiting tasks, each task once, in order.
  private func brokenClaimOrder() -> [String] { lanes.queues.flatMap(brokenClaimOrder) }

  private func brokenClaimOrder(_ queue: Lanes.Queue) -> [String] {
    var table = self
    let expected = entries.slots.map { entries[$0] }.filter {
      $0.isDueOnDate && $0.record.keyRole != .successor && !$0.isHeld
        && $0.record.queue == queue.name
    }
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
      queue: queue.name,
      names: Dictionary(uniqueKeysWithValues: queue.indices.keys.map { ($0.text, .max) }),
      now: Date(timeIntervalSince1970: .greatestFiniteMagnitude),
      conditions: Set(lanes.all.flatMap(\.requirements.conditions))
    )
    let claimed = table.claim(request).tasks.map(\.record.id)
    // If the file gives two tasks the same position, either may come first.
    guard Set(expected.map(\.position)).count == expected.count else {
      return Set(claimed) == Set(expected.map(\.record.id)) && claimed.count == expected.count
        ? [] : ["all waiting tasks are claimed"]
    }
    return claimed == expected.map(\.record.id) ? [] : ["all waiting tasks are claimed in order"]
  }

  /// Everything that a file would contain: the lines of each task, value and memory, sorted.
  func contentLines() throws -> [String] {
    try entries.slots.map { slot in
      let entry = entries[slot]
      let line = try JournalBody(
        .task(
          KeptTask(record: entry.record, position: entry.position, hasLostKey: entry.isKeyless)
        )
      )
      return String(decoding: line.bytes, as: UTF8.self)
    }.sorted() + values.valueLines() + memoryLines()
  }

  /// Like `contentLines()`, but with the ranks of the tasks instead of their positions.
  func contentLinesWithRanks() throws -> [String] {
    var table = self
    let inOrder = entries.slots.sorted { left, right in
      (entries[left].position, entries[left].record.id)
        < (entries[right].position, entries[right].record.id)
    }
    for (rank, slot) in inOrder.enumerated() { table.entries[slot].position = UInt64(rank) }
    return try table.contentLines()
  }
}

extension TaskTable {
  /// Whether a date or a position is far larger than any that the library writes.
  ///
  /// A date billions of years away may change by minutes when it is written again. After an extreme
  /// position, there may be no next one.
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

extension StoredValues {
  fileprivate func valueLines() throws -> [String] {
    try committed.map { name, value in
      let line = try JournalBody(.value(named: name.text, value.bytes))
      return String(decoding: line.bytes, as: UTF8.self)
    }.sorted()
  }
}

extension TaskTable.Entry {
  fileprivate var isPlacedByState: Bool {
    switch record.state {
    case .waiting where record.keyRole == .successor || isHeld,
      .suspended where record.keyRole == .successor || isHeld:
      place == .held
    case .suspended where !record.hasDueDate: place == .suspended
    case .waiting, .suspended: place == .waiting || place == .ready
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
      try record.check(.readable)
      return true
    } catch {
      return false
    }
  }
}
