package import SteadfastQueue

/// A connection on which tasks and values are looked up.
package protocol TaskLookUps {
  func tasks(matching filter: TaskFilter, after id: TaskID?, limit: Int) throws -> [TaskRecord]
  func count(matching filter: TaskFilter) throws -> Int
  func contains(_ filter: TaskFilter) throws -> Bool
  func value(named name: String) throws -> [UInt8]?
  func memory(of id: TaskID) throws -> TaskMemory
}

extension TaskLookUps {
  /// Answers a call that only looks.
  package func answer(_ call: StoreJob.Call) throws -> StoreJob.Answer {
    switch call {
    case .tasks(let filter, let id, let limit):
      .tasks(try tasks(matching: filter, after: id, limit: limit))
    case .count(let filter): .count(try count(matching: filter))
    case .contains(let filter): .isThere(try contains(filter))
    case .value(let name): .value(try value(named: name))
    case .memory(let id): .memory(try memory(of: id))
    case .open, .apply, .claim, .close, .destroy: .nothing
    }
  }
}
