import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Reads files on which a naive reader would spend hours.
@Suite struct CostlyFileTests {
  @Test func `a line with too many fields is refused before its fields are compared`() {
    let fields = (0..<2000).map { ",\"f\($0)\":0" }.joined()
    #expect(throws: JournalProblem.self) {
      try JournalReader.read(ForgedFile.bytes([#""k":"seal"\#(fields)}"#]))
    }
  }

  @Test func `lines that each mark one more line as durable are scanned once`() throws {
    let count = Soak.runs(short: 1000)
    var bytes = ForgedFile.bytes([])
    for number in 1...2 * count {
      let durable = max(1, number - count)
      bytes += ForgedFile.line(#"","b":\#(durable),"s":\#(number),"k":"interruption"}"#)
    }
    let contents = try JournalReader.read(bytes)
    #expect(contents.nextSequence == UInt64(2 * count + 1))
    let first = bytes.split(separator: 0x0A).prefix(count).reduce(0) { $0 + $1.count + 1 }
    #expect(contents.unsyncedOffset == first)
  }

  @Test func `a task that is released very often is queued only once`() throws {
    let count = Soak.runs(short: 3000)
    for end in [#""k":"release","id":"\#(TaskID.numbered(1))"}"#, #""k":"interruption"}"#] {
      let pairs = (0..<count).flatMap { _ in [ForgedFile.begin(1), end] }
      let contents = try JournalReader.read(
        ForgedFile.bytes([ForgedFile.insertion(1)] + pairs)
      )
      let lane = try #require(contents.table.lanes.all.first)
      #expect(lane.ready.count == 1)
    }
  }

  @Test func `a table doesn't keep each released attempt until the next interruption`() throws {
    let count = Soak.runs(short: 3000)
    let release = #""k":"release","id":"\#(TaskID.numbered(2))"}"#
    let pairs = (0..<count).flatMap { _ in [ForgedFile.begin(2), release] }
    let insertions = [ForgedFile.insertion(1), ForgedFile.insertion(2), ForgedFile.begin(1)]
    var contents = try JournalReader.readAsWritten(
      JournalSource(ForgedFile.bytes(insertions + pairs))
    )
    #expect(contents.table.begun.count <= 1100)
    let isReplayed = contents.table.replay(.interruption)
    #expect(isReplayed)
    #expect(contents.table.record(of: .numbered(1))?.interruptionCount == 1)
    #expect(contents.table.record(of: .numbered(2))?.interruptionCount == 0)
    #expect(contents.table.begun == [])
  }

  @Test func `after a bad line, no read is longer than the longest line allowed`() throws {
    let good = ForgedFile.bytes([ForgedFile.insertion(1)])
    for (count, isDamaged) in [(3 << 20, false), (3 << 20, true), (40 << 20, true)] {
      let file = HollowFile(start: good, hollow: count, end: isDamaged ? Self.laterLine : [])
      let source = try JournalSource(file)
      if isDamaged {
        #expect(throws: JournalProblem.self) { try JournalReader.read(source) }
      } else {
        #expect(try JournalReader.read(source).goodSize == good.count)
      }
      #expect(file.longestRead <= JournalLine.maxLength)
    }
  }

  /// A line feed, and a line that marks the previous one as durable.
  private static let laterLine = [0x0A] + ForgedFile.line(#"","b":3,"s":3,"k":"interruption"}"#)

  @Test func `lines that no flush has covered are rewritten in small parts`() throws {
    let insertions = (1...20).map { number in
      ForgedFile.insertion(number).replacing(
        "{}",
        with: "\"\(String(repeating: "x", count: 1 << 17))\""
      )
    }
    let bytes = ForgedFile.bytes(insertions)
    let storage = MemoryStorage(bytes)
    let table = try Journal.open(storage).table
    #expect(table.taskCount == 20)
    #expect(storage.bytes == bytes)
    #expect(storage.longestWritten <= 1 << 20)
  }

  @Test func `a task with the largest possible place number can be compacted and read`() throws {
    let body = ForgedFile.task(1, place: KeptTask.maxPosition)
    let (journal, table) = try Journal.open(
      MemoryStorage(ForgedFile.bytes([body, ForgedFile.insertion(2)]))
    )
    let storage = MemoryStorage()
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try compaction.finish(journal, at: .seconds(0))
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 2)
    let beyond = ForgedFile.task(1, place: KeptTask.maxPosition + 1)
    #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes([beyond])) }
  }

  @Test func `a change that is longer than the library writes any change is refused`() throws {
    let long = String(repeating: "x", count: 32 << 10)
    let retry =
      #""k":"retry","id":"\#(TaskID.numbered(1))","available":0.0,"retries":1,"failed":0.0,"#
      + #""error":"\#(long)"}"#
    #expect(throws: JournalProblem.self) {
      try JournalReader.read(
        ForgedFile.bytes([ForgedFile.insertion(1), ForgedFile.begin(1), retry])
      )
    }
  }

  @Test func `IDs with the same high or low half have different hashes`() throws {
    let count: UInt64 = 2000
    var hashes: Set<Int> = []
    for number in 0..<count {
      hashes.insert(TaskID(high: number, low: 1).hashValue)
      hashes.insert(TaskID(high: 1, low: number + 2).hashValue)
    }
    #expect(hashes.count == 2 * Int(count))
  }

  @Test func `the last of very many lines of a task's memory is read as fast as the first`()
    throws
  {
    let count = Soak.runs(short: 4000)
    var text = try JournalText()
    let task = KeptTask(record: .make(1), position: 1, hasLostKey: false)
    try text.add(.task(task))
    for number in 0..<count {
      // The names are unordered, so that most lines belong between earlier ones.
      let name = "step:\(10_000_000 + number ^ 0x2AAA)"
      try text.add(.memory(.numbered(1), named: name, Array("1".utf8)))
    }
    let table = try JournalReader.read(text.bytes).table
    #expect(table.memory(of: .numbered(1)).names.count == count)
    #expect(table.memoryCount == count)
  }

  @Test func `a unique key of tasks with very many names is found as fast as other keys`()
    throws
  {
    let count = Soak.runs(short: 2000)
    var text = try JournalText()
    for number in 1...count {
      let name = "Sync \(number)"
      try text.add(.addition(.make(number, name: name, key: "sync"), .holder))
      try text.add(.begin(.numbered(number)))
      try text.add(.addition(.make(count + number, name: name, key: "sync"), .successor))
    }
    for number in (1...count).reversed() {
      let lease = Lease(id: .numbered(number), token: 0)
      try text.add(.change(.succeed(lease, at: .seconds(1), retains: false)))
    }
    let table = try JournalReader.read(text.bytes).table
    #expect(table.taskCount == count)
    #expect(table.record(of: .numbered(2 * count))?.keyRole == .holder)
  }

  @Test func `a batch without an end is cut off as a whole`() throws {
    var bytes = ForgedFile.bytes([])
    let size = bytes.count
    for number in 1...1000 {
      bytes += ForgedFile.line(#"","b":1,"s":\#(number),"more":true,"k":"interruption"}"#)
    }
    let contents = try JournalReader.read(bytes)
    #expect(contents.goodSize == size)
    #expect(contents.nextSequence == 1)
  }

  @Test func `values nested too deeply are refused without recursion`() {
    for bracket in ["[", "{\"a\":"] {
      let payload = String(repeating: bracket, count: 1 << 18)
      let body = ForgedFile.insertion(1).replacing("{}", with: payload)
      #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes([body])) }
    }
  }

  @Test(.enabled(if: Soak.runs(short: 0) > 0, "its 16 MiB take seconds in debug"))
  func `a line longer than the limit counts as torn or damaged, and is never accepted`() throws {
    let text = String(repeating: "x", count: JournalLine.maxLength)
    let body = ForgedFile.insertion(1).replacing("{}", with: "\"\(text)\"")
    let bytes = ForgedFile.bytes([body])
    #expect(try JournalReader.read(bytes).nextSequence == 1)
    let behind = ForgedFile.line(#"","b":2,"s":2,"k":"seal"}"#)
    #expect(throws: JournalProblem.self) { try JournalReader.read(bytes + behind) }
  }

  @Test func `the largest task can be read after it failed and the file was compacted`() throws {
    let error = String(repeating: "\u{1}", count: AttemptJudge.longestReason)
    let failure = TaskFailure(reason: error, date: .seconds(-0.1234567))
    let lease = Lease(id: .numbered(1), token: 0)
    let changes: [TaskChange] = [
      .park(lease, failure: failure), .abandon(lease, failure: failure, retains: true),
      .retry(lease, availableDate: .distantPast, retryCount: .max, failure: failure),
    ]
    for change in changes {
      #expect(try JournalBody(.change(change)).bytes.count <= JournalBody.maxLength(of: change))
    }
    var record = TaskRecord.make(1, key: "key")
    let insertion = TaskChange.insert(record, onDuplicate: .keep)
    record.state = .abandoned
    record.retryCount = .max
    record.interruptionCount = .max
    for _ in 1...9 { record.note(failure) }
    record.finishedDate = failure.date
    let kept = KeptTask(record: record, position: KeptTask.maxPosition, hasLostKey: true)
    // The payload is in both lines, so it doesn't affect the difference.
    let growth =
      try JournalBody(.task(kept)).bytes.count - JournalBody(.change(insertion)).bytes.count
    var envelope: [UInt8] = []
    JournalLine.append(
      JournalBody([]),
      sequence: .max,
      firstUnsynced: .max,
      isContinued: true,
      to: &envelope
    )
    let longest = JournalBody.maxLength(of: insertion) + growth + envelope.count
    #expect(longest <= JournalLine.maxLength)
  }
}

/// A file with many zeros in its middle.
private final class HollowFile: JournalFile {
  private let start: [UInt8]
  private let hollow: Int
  private let end: [UInt8]
  private let longest = Mutex(0)

  init(start: [UInt8], hollow: Int, end: [UInt8]) {
    self.start = start
    self.hollow = hollow
    self.end = end
  }

  /// The size of the longest read, in bytes.
  var longestRead: Int { longest.withLock { $0 } }

  func size() -> Int { start.count + hollow + end.count }

  func read(_ count: Int, at offset: Int) -> [UInt8] {
    longest.withLock { $0 = max($0, count) }
    var bytes = [UInt8](repeating: 0, count: count)
    for (part, partOffset) in [(start, 0), (end, start.count + hollow)] {
      for index in part.indices where bytes.indices.contains(partOffset + index - offset) {
        bytes[partOffset + index - offset] = part[index]
      }
    }
    return bytes
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) -> Int { bytes.count }
  func truncate(to size: Int) {}
  func synchronize() {}
  func close() {}
}
