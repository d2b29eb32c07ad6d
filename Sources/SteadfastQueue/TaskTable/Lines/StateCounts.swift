/// The number of tasks in each state.
///
/// The counts are in an array: every task changes them several times, and hashing a state costs
/// more.
struct StateCounts: Sendable {
  private var counts = Array(repeating: 0, count: TaskState.allCases.count)

  subscript(state: TaskState) -> Int {
    get { counts[Self.index(of: state)] }
    set { counts[Self.index(of: state)] = newValue }
  }

  var total: Int { counts.reduce(0, +) }

  func total(of states: Set<TaskState>) -> Int { states.reduce(0) { $0 + self[$1] } }

  private static func index(of state: TaskState) -> Int {
    switch state {
    case .waiting: 0
    case .running: 1
    case .parked: 2
    case .paused: 3
    case .succeeded: 4
    case .abandoned: 5
    case .cancelled: 6
    case .suspended: 7
    }
  }
}
