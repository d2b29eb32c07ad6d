import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The result of reading a file.
private struct Reading: Equatable {
  var tasks: [String] = []
  var numbers: [Int] = []
  var nextSequence: UInt64 = 0
  var isSealed = false
  var lastCompaction: JSONFileStatistics.Compaction?
  var problem: JournalProblem?

  init(of bytes: [UInt8], partSize: Int) throws {
    switch Result(catching: { try JournalReader.read(JournalSource(bytes), partSize: partSize) }) {
    case .failure(let error):
      problem = try #require(error as? JournalProblem)
    case .success(let contents):
      tasks = try contents.table.contentLinesWithRanks()
      numbers = [
        contents.version, contents.generation, contents.interruptionCount, contents.goodSize,
        contents.unsyncedOffset, contents.table.compactSize,
      ]
      nextSequence = contents.nextSequence
      isSealed = contents.isSealed
      lastCompaction = contents.lastCompaction
    }
  }
}

@Suite struct JournalChunkTests {
  /// The sizes of parts, from less than a line to several batches.
  private static let sizes = [1, 7, 90, 500, 3000]

  @Test func `reading a file in parts gives the same result as reading it at once`() async throws {
    for seed in 1...UInt64(max(2, Soak.runs(short: 0) / 400)) {
      let file = try await FileMaker.file(seed: seed)
      let other = try await FileMaker.file(seed: seed ^ 1 << 40, rounds: 8)
      var damage = FileDamage(seed: seed)
      var forgery = Forgery(seed: seed)
      for number in 0..<24 {
        let bytes =
          switch number {
          case 0: file.bytes
          case 1..<12: damage.damaged(file)
          default: forgery.forged(file, other)
          }
        let whole = try Reading(of: bytes, partSize: max(1, bytes.count))
        for size in Self.sizes {
          let parts = try Reading(of: bytes, partSize: size)
          #expect(parts == whole, "seed \(seed), file \(number), parts of \(size) bytes")
        }
      }
    }
  }

  @Test func `a line that is longer than a part is read`() throws {
    let payload = "\"" + String(repeating: "x", count: 1000) + "\""
    let body = ForgedFile.insertion(1).replacing("{}", with: payload)
    let bytes = ForgedFile.bytes([body, ForgedFile.insertion(2)])
    for size in 1...300 {
      let contents = try JournalReader.read(JournalSource(bytes), partSize: size)
      #expect(contents.table.taskCount == 2, "parts of \(size) bytes")
    }
  }

  @Test func `a long line is read from a file on disk too`() throws {
    let payload = "\"" + String(repeating: "x", count: 40_000) + "\""
    let body = ForgedFile.insertion(1).replacing("{}", with: payload)
    let storage = MemoryStorage(ForgedFile.bytes([body, ForgedFile.insertion(2)]))
    let file = try #require(try storage.open(.journal))
    let source = try JournalSource(file, sizeInMemory: 0)
    for size in [1000, 5000, 39_999, 50_000] {
      let contents = try JournalReader.read(source, partSize: size)
      #expect(contents.table.taskCount == 2, "parts of \(size) bytes")
    }
  }

  @Test func `a very long line is read once, not once per part`() throws {
    let payload = "\"" + String(repeating: "x", count: 40_000) + "\""
    let body = ForgedFile.insertion(1).replacing("{}", with: payload)
    let storage = MemoryStorage(ForgedFile.bytes([body, ForgedFile.insertion(2)]))
    let file = try #require(try storage.open(.journal))
    let contents = try JournalReader.read(JournalSource(file, sizeInMemory: 0), partSize: 1000)
    #expect(contents.table.taskCount == 2)
    let partCount = storage.bytes.count / 1000 + 1
    // The line starts in the first part. The part doubles in size until it contains the whole line.
    #expect(storage.calls.count { $0 == .read } <= partCount + 4)
  }

  @Test func `a torn end is distinguished from damage in a file that isn't in memory`() throws {
    let bodies = (1...3000).map { ForgedFile.insertion($0) }
    let whole = ForgedFile.bytes(bodies)
    #expect(whole.count > 2 * JournalReader.partSize)
    let torn = MemoryStorage(whole.dropLast(10))
    let opened = try Journal.open(torn)
    #expect(opened.table.taskCount == 2999)
    #expect(opened.journal.size == torn.bytes.count)
    #expect(torn.bytes == whole.dropLast(whole.count - torn.bytes.count))

    var damaged = whole
    damaged[whole.count / 2] ^= 1
    damaged += ForgedFile.line(#"","b":3001,"s":3001,"k":"seal"}"#)
    #expect(throws: JournalProblem.self) { try Journal.open(MemoryStorage(damaged)).journal.size }
  }

  @Test(arguments: [1, 2, 8, 9])
  func `reading throws the system's error if a part can't be read`(number: Int) throws {
    let storage = MemoryStorage(ForgedFile.bytes((1...3000).map { ForgedFile.insertion($0) }))
    let bytes = storage.bytes
    storage.fail(.read, EIO, after: number - 1)
    #expect { try Journal.open(storage).journal.size } throws: { error in
      switch error {
      case JournalProblem.unreadable(let error): error.number == EIO
      case let error as SystemCallError: error.number == EIO
      default: false
      }
    }
    #expect(storage.bytes == bytes)
  }

  @Test func `a batch too large for memory is read as a whole`() throws {
    let count = JournalReader.maxBatchInMemory + 10
    var bytes = ForgedFile.bytes([])
    for number in 1...count {
      let more = number < count ? #""more":true,"# : ""
      let body = number == count ? ForgedFile.insertion(1) : #""k":"interruption"}"#
      bytes += ForgedFile.line(#"","b":1,"s":\#(number),\#(more)\#(body)"#)
    }
    let contents = try JournalReader.read(bytes)
    #expect(contents.nextSequence == UInt64(count + 1))
    #expect(contents.table.taskCount == 1)
    #expect(contents.goodSize == bytes.count)
  }
}
