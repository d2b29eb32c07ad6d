//! Short pieces of tests: of what retries, of what uses a queue, and of a store. They are compiled,
//! and not run.

import Foundation
import SteadfastTesting
import Synchronization
import Testing

struct PostComment: TaskPayload, Equatable { var text: String }
struct Order: TaskPayload { var number: Int }
struct Parcel: TaskPayload { var number: Int }
struct Page { var text = "" }
struct DiskFull: Error {}

/// A client whose request may fail.
struct Weather {
  let clock: VirtualClock
  let fetch: @Sendable () async throws -> Double

  func temperature() async throws -> Double {
    try await withRetry(.attempts(5), clock: clock) { try await fetch() }
  }
}

struct Session: Sendable { func data(from url: URL) async throws -> Data { Data() } }

struct Poster: Sendable {
  func post(_ comment: PostComment, _ context: TaskContext) async throws {}
}

func load() async throws -> Page { Page() }
func send(_ parcel: Parcel) async throws {}
func checkOut(_ order: Order, _ context: TaskContext) async throws {}

let folder = FileManager.default.temporaryDirectory

/// Stands for a store of one's own.
typealias MyStore = InMemoryStore

extension InMemoryStore {
  convenience init(table: String, offset: Duration = .zero) { self.init() }

  convenience init(at url: URL) { self.init() }
}

/// How far the clocks of the stores are ahead, by their places.
final class Offsets: Sendable {
  private let values = Mutex<[String: Duration]>([:])

  subscript(place: String) -> Duration { values.withLock { $0[place, default: .zero] } }

  func advance(_ place: String?, by duration: Duration) {
    values.withLock { $0[place ?? "", default: .zero] += duration }
  }
}

func testInAnHour() async throws {
  // snippet.hour
  try await withVirtualTime { time in
    let hour = RetryPolicy.within(.seconds(3_600))
    let page = try await withRetry(hour, clock: time.clock) {
      try await load()
    }
    #expect(time.clock.now.offset < .seconds(3_600))
    // snippet.hide
    print(page)
    // snippet.show
  }
  // snippet.end
}

func waitForSomethingReal(_ time: VirtualTime, _ session: Session, _ url: URL) async throws {
  // snippet.real-work
  let reply = try await time.withRealWork {
    try await session.data(from: url)
  }
  // snippet.end
  print(reply)
}

func useTheClockAlone(_ fetch: @escaping @Sendable () async throws -> Double) async throws {
  // snippet.clock
  let clock = VirtualClock()
  async let temperature = Weather(clock: clock, fetch: fetch).temperature()
  try await clock.waitForSleepers(count: 1)
  clock.advance(by: .seconds(1))
  // snippet.end
  _ = try await temperature
}

func retryOnAClock(_ fetch: @escaping @Sendable () async throws -> Double) async throws {
  // snippet.sleepers
  let clock = VirtualClock()
  let policy = RetryPolicy.attempts(2, backoff: .constant(.seconds(60)))
  async let reply = withRetry(policy, clock: clock) {
    try await fetch()
  }
  try await clock.waitForSleepers(count: 1)
  clock.advance(by: .seconds(60))
  // snippet.end
  _ = try await reply
}

func drain(_ queue: TaskQueue, _ time: VirtualTime) async throws {
  // snippet.drain
  try await queue.enqueue(PostComment(text: "later"), delay: .seconds(86_400))
  #expect(try await time.drain(queue) == 1)
  // snippet.end
}

func look(_ queue: TaskQueue, _ clock: VirtualClock) async throws {
  // snippet.pending
  let comments = try await queue.pendingTasks(of: PostComment.self)
  #expect(comments.map(\.payload.text) == ["so important"])
  #expect(comments[0].record.availableDate == clock.date + 60)
  // snippet.end
}

func attempt(_ poster: Poster) async throws {
  // snippet.attempt
  let attempt = try await performAttempt(
    PostComment(text: "Hi"),
    retryCount: 10
  ) { comment, context in
    try await poster.post(comment, context)
  }
  #expect(attempt.ending == .abandoned(reason: "offline"))
  // snippet.end
}

func remember(_ order: Order, _ receipt: String) async throws {
  // snippet.memory
  let attempt = try await performAttempt(
    order,
    remembering: TaskMemory(steps: ["charge": receipt]),
    perform: checkOut
  )
  #expect(attempt.memory.steps == ["charge", "label"])
  // snippet.end
}

func fail(_ clock: VirtualClock) async throws {
  // snippet.faults
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: clock)
  store.inject(.error(DiskFull())) { $0.kind == .apply }
  // snippet.end
  try await queue.open()
}

// snippet.conformance
@Test func `my store keeps its promises`() async {
  let report = await PersistenceConformance().check { place in
    MyStore(at: folder.appending(path: place))
  }
  #expect(report.passes, "\(report)")
}
// snippet.end

func checkTables() async {
  // snippet.tables
  let report = await PersistenceConformance().check { place in
    MyStore(table: place)
  }
  #expect(report.passes, "\(report)")
  // snippet.end
}

func checkLeases(_ offsets: Offsets) async {
  // snippet.leases
  let report = await PersistenceConformance().check(
    advancingClocks: { offsets.advance($0, by: $1) }
  ) { place in
    MyStore(table: place, offset: offsets[place])
  }
  // snippet.end
  print(report)
}

func leaveOut() -> PersistenceConformance {
  // snippet.excluding
  PersistenceConformance(
    excluding: ["record.large": "tasks of this service have 64 KB at most"]
  )
  // snippet.end
}

func check(_ files: [URL]) throws {
  // snippet.history
  let report = try History(contentsOf: files).check()
  #expect(report.passes, "\(report)")
  // snippet.end
}

func record(_ store: any Persistence, to file: URL) async throws {
  // snippet.recorder
  let recorder = try HistoryRecorder(store, to: file)
  let queue = TaskQueue(persistence: recorder)
  await queue.register(Parcel.self) { parcel, context in
    try await recorder.recordAttempt(of: context.id) {
      try await send(parcel)
    }
  }
  // snippet.end
}
