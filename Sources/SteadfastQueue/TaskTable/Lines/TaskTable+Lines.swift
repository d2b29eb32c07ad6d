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

  /// Moves a task to the end of its line.
  ///
  /// If a staged change holds the task, it enters the line when that change is committed or rolled
  /// back.
  mutating func lineUpAnewWhenFree(_ slot: Int) {
    guard entries[slot].isReserved else { return lineUpAnew(slot) }
    entries[slot].position = nextNumber()
    setPlace(.waiting, of: slot)
  }

  /// Puts a task in the line where its state and date put it, at its present position.
  mutating func lineUp(_ slot: Int) {
    leaveLine(slot)
    enterLine(slot)
  }

  private mutating func enterLine(_ slot: Int) {
    let state = entries[slot].record.state
    if entries[slot].isOrdered, let key = orderKey(of: slot) { settleHead(of: key) }
    switch state {
    case .waiting, .suspended:
      if entries[slot].record.keyRole == .successor || entries[slot].isHeld {
        return setPlace(.held, of: slot)
      }
      if state == .suspended, !entries[slot].record.hasDueDate {
        return setPlace(.suspended, of: slot)
      }
      if entries[slot].record.availableDate <= cutoff {
        setPlace(.ready, of: slot)
        lanes.insertReady(readyNode(of: slot), in: entries[slot].lane)
      } else {
        setPlace(.waiting, of: slot)
        waiting.insert(dateNode(of: slot))
      }
    case .parked:
      setPlace(.parked, of: slot)
      lanes.insertParked(node(of: slot), in: entries[slot].lane)
    case .paused:
      setPlace(.paused, of: slot)
      return
    case .succeeded, .abandoned, .cancelled:
      setPlace(.finished, of: slot)
      ended.insert(
        node(of: slot),
        state,
        in: queueNumber(of: slot),
        until: entries[slot].record.prunableDate
      )
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
      wasThere = lanes.removeReady(readyNode(of: slot), from: lane)
    case .parked:
      wasThere = lanes.removeParked(node, from: lane)
    case .finished:
      let record = entries[slot].record
      wasThere = ended.remove(node, record.state, in: lanes[lane].queue, until: record.prunableDate)
    case .staged, .held, .leased, .suspended, .paused:
      wasThere = false
    }
    precondition(wasThere, "a task was changed before it left its line")
  }

  // These are inlined, because for a call that only reads, the caller copies the whole table's
  // variables: hundreds of bytes.

  @inline(__always)
  private func node(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].position)
  }

  @inline(__always)
  private func dateNode(of slot: Int) -> DateNode {
    DateNode(date: entries[slot].record.availableDate, node: node(of: slot))
  }

  @inline(__always)
  private func readyNode(of slot: Int) -> ReadyNode {
    ReadyNode(
      priority: entries[slot].record.priority.rawValue,
      date: entries[slot].record.availableDate,
      node: node(of: slot)
    )
  }
}
