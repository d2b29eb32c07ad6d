/// The lines: each holds the tasks that are at rest in one way, once and in order.
///
/// A task that a staged change holds leaves the line of waiting or ready tasks, so that a claim
/// finds only tasks that it may take. It stays in the line of parked or ended tasks.
extension TaskTable {
  /// Moves a task to the end of the line where its state and date put it.
  mutating func lineUpAnew(_ slot: Int) {
    leaveLine(slot)
    entries[slot].position = nextNumber()
    enterLine(slot)
  }

  /// Puts a task in the line where its state and date put it, at its present position.
  mutating func lineUp(_ slot: Int) {
    leaveLine(slot)
    enterLine(slot)
  }

  private mutating func enterLine(_ slot: Int) {
    let state = entries[slot].record.state
    switch state {
    case .waiting where entries[slot].record.availableDate <= horizon:
      setPlace(.ready, of: slot)
      let (lane, node) = (entries[slot].lane, readyNode(of: slot))
      lanes[lane].ready.insert(node)
      if lanes[lane].rank.map({ node < $0 }) ?? true { rank(lane) }
    case .waiting:
      setPlace(.waiting, of: slot)
      waiting.insert(dateNode(of: slot))
    case .parked:
      setPlace(.parked, of: slot)
      lanes[entries[slot].lane].parked.insert(node(of: slot))
    case .paused:
      setPlace(.paused, of: slot)
      return
    case .succeeded, .abandoned, .cancelled:
      setPlace(.finished, of: slot)
      ended[state, default: OrderedLine()].insert(node(of: slot))
    case .running:
      preconditionFailure("a running task stands in no line")
    }
    entries[slot].isInLine = true
  }

  /// Takes a task out of its line, if it stands in one.
  ///
  /// Call this before the task's state, date or position changes, because the line finds it by
  /// them.
  @inline(__always)
  mutating func leaveLine(_ slot: Int) {
    if entries[slot].isInLine { takeOutOfLine(slot) }
  }

  private mutating func takeOutOfLine(_ slot: Int) {
    entries[slot].isInLine = false
    let (node, lane) = (node(of: slot), entries[slot].lane)
    let wasThere: Bool
    switch entries[slot].place {
    case .waiting:
      wasThere = waiting.remove(dateNode(of: slot))
    case .ready:
      let node = readyNode(of: slot)
      wasThere = lanes[lane].ready.remove(node)
      if lanes[lane].rank == node { rank(lane) }
    case .parked:
      wasThere = lanes[lane].parked.remove(node)
    case .finished:
      wasThere = ended[entries[slot].record.state]?.remove(node) ?? false
    case .staged, .leased, .paused:
      wasThere = false
    }
    precondition(wasThere, "a task was changed before it left its line")
  }

  /// Moves a lane in the ranking to where its first ready task belongs.
  mutating func rank(_ lane: Int) {
    let first = lanes[lane].ready.first
    guard lanes[lane].rank != first else { return }
    if let rank = lanes[lane].rank { ranking.remove(RankedLane(first: rank, lane: lane)) }
    if let first { ranking.insert(RankedLane(first: first, lane: lane)) }
    lanes[lane].rank = first
  }

  private func node(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].position)
  }

  private func dateNode(of slot: Int) -> DateNode {
    DateNode(date: entries[slot].record.availableDate, node: node(of: slot))
  }

  private func readyNode(of slot: Int) -> ReadyNode {
    ReadyNode(
      priority: entries[slot].record.priority.rawValue,
      date: entries[slot].record.availableDate,
      node: node(of: slot)
    )
  }
}
