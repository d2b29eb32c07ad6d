import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Files that would keep a careless reader busy for hours; each is read here in a moment.
@Suite struct CostlyFileTests {
  @Test func `a line of very many fields is refused before they are compared`() {
    let fields = (0..<2000).map { ",\"f\($0)\":0" }.joined()
    #expect(throws: JournalProblem.self) {
      try JournalReader.read(ForgedFile.bytes([#""k":"seal"\#(fields)}"#]))
    }
  }

  @Test func `lines that know one more to be durable each are passed once`() throws {
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

  @Test func `identities that share a half are told apart`() throws {
    let count: UInt64 = 2000
    var hashes: Set<Int> = []
    for number in 0..<count {
      hashes.insert(TaskID(high: number, low: 1).hashValue)
      hashes.insert(TaskID(high: 1, low: number + 2).hashValue)
    }
    #expect(hashes.count == 2 * Int(count))
  }

  @Test func `a batch without an end is torn off as a whole`() throws {
    var bytes = ForgedFile.bytes([])
    let size = bytes.count
    for number in 1...1000 {
      bytes += ForgedFile.line(#"","b":1,"s":\#(number),"more":true,"k":"interruption"}"#)
    }
    let contents = try JournalReader.read(bytes)
    #expect(contents.goodSize == size)
    #expect(contents.nextSequence == 1)
  }

  @Test func `values nested too deep are refused, and no stack is spent on them`() {
    for bracket in ["[", "{\"a\":"] {
      let payload = String(repeating: bracket, count: 1 << 18)
      let body = ForgedFile.insertion(1).replacing("{}", with: payload)
      #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes([body])) }
    }
  }

  @Test(.enabled(if: Soak.runs(short: 0) > 0, "its 16 MiB take seconds in debug"))
  func `a line longer than the limit is torn or damage, and is never taken in`() throws {
    let text = String(repeating: "x", count: JournalLine.maxLength)
    let body = ForgedFile.insertion(1).replacing("{}", with: "\"\(text)\"")
    let bytes = ForgedFile.bytes([body])
    #expect(try JournalReader.read(bytes).nextSequence == 1)
    let behind = ForgedFile.line(#"","b":2,"s":2,"k":"seal"}"#)
    #expect(throws: JournalProblem.self) { try JournalReader.read(bytes + behind) }
  }

  @Test func `the largest task can be read when it has failed and the file was compacted`() throws {
    let error = String(repeating: "\u{1}", count: AttemptJudge.longestReason)
    let failure = TaskFailure(reason: error, date: .seconds(-0.1234567))
    let lease = Lease(id: .numbered(1), token: 0)
    let changes: [TaskChange] = [
      .park(lease, failure: failure), .abandon(lease, failure: failure, keeps: true),
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
    record.lastError = error
    record.failedDate = failure.date
    record.finishedDate = failure.date
    let kept = KeptTask(record: record, position: .max >> 2, hasLostKey: true)
    // The payload stands in both, and counts in neither.
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
