@testable import SteadfastQueue

/// The bytes of a queue's file, built line by line.
struct JournalText {
  private(set) var lines: [[UInt8]] = []
  private var sequence: UInt64 = 0

  /// Makes a file that contains only a header.
  init(generation: Int = 1) throws {
    try add(.header(version: 1, generation: generation))
  }

  var bytes: [UInt8] { lines.flatMap { $0 } }

  /// Adds batches of one line each, which record that the previous lines are durable.
  mutating func add(_ entries: JournalEntry...) throws {
    for entry in entries { try addBatch([entry]) }
  }

  /// Adds a batch of several lines.
  mutating func addBatch(_ entries: [JournalEntry]) throws {
    let first = sequence
    for (index, entry) in entries.enumerated() {
      var line: [UInt8] = []
      JournalLine.append(
        try JournalBody(entry),
        sequence: sequence,
        firstUnsynced: first,
        isContinued: index + 1 < entries.count,
        to: &line
      )
      lines.append(line)
      sequence += 1
    }
  }

  /// Adds tasks with these numbers.
  mutating func addTasks(_ numbers: some Sequence<Int>) throws {
    for number in numbers { try add(.change(.insert(.make(number), onDuplicate: .keep))) }
  }

  /// Adds an attempt that succeeds.
  mutating func addSuccess(of number: Int) throws {
    let id = TaskID.numbered(number)
    try add(
      .begin(id),
      .change(.succeed(Lease(id: id, token: 0), at: .seconds(1), retains: false))
    )
  }
}

extension [[UInt8]] {
  /// Returns the lines with a bit of one line's body flipped.
  func flipping(_ line: Int) -> [[UInt8]] {
    var lines = self
    lines[line][lines[line].count - 5] ^= 4
    return lines
  }

  /// Returns the lines without one of them.
  func dropping(_ line: Int) -> [[UInt8]] {
    var lines = self
    lines.remove(at: line)
    return lines
  }
}

extension TaskTable {
  /// The numbers of the tasks in the table, in order.
  var numbers: [Int] {
    tasks(matching: TaskFilter(), after: nil, limit: .max).map { Int($0.id.low) }
  }
}
