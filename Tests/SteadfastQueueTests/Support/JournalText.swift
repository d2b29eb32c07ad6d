@testable import SteadfastQueue

/// The bytes of a queue's file, made line by line.
struct JournalText {
  private(set) var lines: [[UInt8]] = []
  private var sequence: UInt64 = 0

  /// A file with a header.
  init(generation: Int = 1) throws {
    try add(.header(version: 1, generation: generation))
  }

  var bytes: [UInt8] { lines.flatMap { $0 } }

  /// Adds batches of one line each; each line knows those before it to be durable.
  mutating func add(_ entries: JournalEntry...) throws {
    for entry in entries { try addBatch([entry]) }
  }

  /// Adds a batch.
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
  /// With a bit of a line flipped, somewhere in its body.
  func flipping(_ line: Int) -> [[UInt8]] {
    var lines = self
    lines[line][lines[line].count - 5] ^= 4
    return lines
  }

  /// Without a line.
  func dropping(_ line: Int) -> [[UInt8]] {
    var lines = self
    lines.remove(at: line)
    return lines
  }
}

extension TaskTable {
  /// The numbers of the tasks that tests made, in order.
  var numbers: [Int] {
    tasks(matching: TaskFilter(), after: nil, limit: .max).map { Int($0.id.low) }
  }
}
