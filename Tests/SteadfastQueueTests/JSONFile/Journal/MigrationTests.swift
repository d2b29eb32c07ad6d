import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Opens files of the first version, in which a unique key applied to tasks of all names, and the
/// last task with a key held the key.
@Suite struct MigrationTests {
  /// The number of tasks.
  ///
  /// Of each ten, three are plain, six have keys, and one was replaced.
  private static let count = max(10, Soak.runs(short: 4_000) / 10 * 10)

  /// The lines of a task, as an earlier version wrote them.
  private func lines(of number: Int) throws -> [JournalBody] {
    let name = number % 2 == 0 ? "Even" : "Odd"
    let record = TaskRecord.make(number, name: name, priority: .init(rawValue: number % 3))
    let plain = try JournalBody(.change(.insert(record, onDuplicate: .keep)))
    let lease = Lease(id: .numbered(number), token: 0)
    let date = Date.seconds(Double(number))
    func keyed(_ key: String, replaces: Bool = false) -> JournalBody {
      let fields = ",\"key\":\"\(key)\"" + (replaces ? ",\"replace\":true}" : "}")
      return JournalBody(plain.bytes.dropLast() + Array(fields.utf8))
    }
    func line(_ change: TaskChange) throws -> JournalBody { try JournalBody(.change(change)) }
    let begin = JournalBody(attemptStartOf: .numbered(number))
    return switch number % 10 {
    case 0: [plain]
    case 1: [plain, begin, try line(.succeed(lease, at: date, retains: false))]
    case 2: [plain, begin]
    case 3: [keyed("key \(number)"), begin]
    case 4: [keyed("key \(number - 1)", replaces: true)]
    case 5:
      [keyed("key \(number)"), try line(.cancel(.unclaimed(lease.id), at: date, retains: true))]
    case 6:
      [
        keyed("key \(number)"), begin,
        try line(
          .abandon(lease, failure: TaskFailure(reason: "no", date: date), retains: true)
        ),
      ]
    case 7: [keyed("key \(number)")]
    case 8: [keyed("key \(number - 1)", replaces: true)]
    default:
      [
        keyed("key \(number)"), begin,
        try line(.retry(lease, availableDate: date, retryCount: 1, failure: nil)),
      ]
    }
  }

  private func fileOfFirstVersion() throws -> [UInt8] {
    var bytes: [UInt8] = []
    var sequence: UInt64 = 0
    func add(_ body: JournalBody) {
      JournalLine.append(
        body,
        sequence: sequence,
        firstUnsynced: sequence,
        isContinued: false,
        to: &bytes
      )
      sequence += 1
    }
    add(try JournalBody(.header(version: 1, generation: 1)))
    for number in 1...Self.count { for body in try lines(of: number) { add(body) } }
    return bytes
  }

  @Test func `a file of an earlier version with many tasks opens, and nothing is lost`()
    async throws
  {
    let bytes = try fileOfFirstVersion()
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      try Data(bytes).write(to: url)
      for round in 1...3 {
        let store = JSONFileStore(at: url)
        let tenth = Self.count / 10
        // Of each ten tasks, one has succeeded, and one was replaced before its attempt began.
        #expect(try await store.count(matching: TaskFilter()) == 8 * tenth)
        let expected: [TaskState: Int] = [
          .waiting: 6 * tenth, .cancelled: tenth, .abandoned: tenth,
        ]
        for (state, count) in expected {
          #expect(try await store.count(matching: TaskFilter(states: [state])) == count)
        }
        func storedTask(_ number: Int) async throws -> TaskRecord? {
          let filter = TaskFilter(ids: [.numbered(number)])
          return try await store.tasks(matching: filter, after: nil, limit: 1).first
        }
        let last = Self.count - 10
        for gone in [1, 7] { #expect(try await storedTask(last + gone) == nil) }
        #expect(try await storedTask(last + 2)?.interruptionCount == 1)
        // A task that was replaced while it ran continues without the key.
        #expect(try await storedTask(last + 3)?.keyRole == nil)
        #expect(try await storedTask(last + 4)?.keyRole == .holder)
        #expect(try await storedTask(last + 9)?.retryCount == 1)
        let keys = Set([5, 6, 7, 9].map { "key \(last + $0)" })
        #expect(try await store.count(matching: TaskFilter(uniqueKeys: keys)) == 4)
        try await store.close()
        // A file with a second hard link is compacted on opening, so the third round reads that.
        if round == 1 {
          try FileManager.default.linkItem(at: url, to: folder.appending(path: "backup"))
        }
      }
    }
    // Damage to a file of the first version is refused, too.
    var damaged = bytes
    damaged[bytes.count / 2] ^= 1
    #expect(throws: JournalProblem.self) { try JournalReader.read(damaged) }
  }
}
