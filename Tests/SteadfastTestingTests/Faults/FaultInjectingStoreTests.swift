import SteadfastTesting
import TestSupport
import Testing

private struct DiskFull: Error, Equatable {}
private struct Unreachable: Error, Equatable {}

private struct Page: TaskPayload { var number = 1 }

@Suite(.virtualTime) struct FaultInjectingStoreTests {
  private let time: VirtualTime
  private let base = InMemoryStore()
  private let store: FaultInjectingStore
  private let queue: TaskQueue

  init() throws {
    time = try #require(VirtualTime.current)
    store = FaultInjectingStore(base)
    queue = TaskQueue(persistence: store, clock: time.clock)
  }

  /// The number of tasks in the underlying store.
  private var storedCount: Int {
    get async throws { try await base.count(matching: TaskFilter()) }
  }

  @Test func `a call that fails before its effect stores no task, and the next call succeeds`()
    async throws
  {
    store.inject(.error(DiskFull())) { $0.kind == .apply }
    await #expect(throws: DiskFull.self) { try await queue.enqueue(Page()) }
    #expect(try await storedCount == 0)
    try await queue.enqueue(Page())
    #expect(try await storedCount == 1)
  }

  @Test func `a call that fails after its effect has stored the task`() async throws {
    store.inject(.error(DiskFull()), .afterEffect) { $0.kind == .apply }
    await #expect(throws: DiskFull.self) { try await queue.enqueue(Page()) }
    #expect(try await storedCount == 1)
  }

  @Test func `a fault affects as many calls as requested`() async throws {
    store.inject(.error(DiskFull()), times: 2) { $0.kind == .count }
    for _ in 1...2 { await #expect(throws: DiskFull.self) { try await queue.count } }
    #expect(try await queue.count == 0)
    store.inject(.error(DiskFull()), times: nil) { $0.kind == .count }
    for _ in 1...9 { await #expect(throws: DiskFull.self) { try await queue.count } }
    store.restore()
    #expect(try await queue.count == 0)
  }

  @Test(arguments: FaultInjectingStore.Call.Kind.allCases)
  func `a fault can affect only the second call, whatever the kind of the call`(
    kind: FaultInjectingStore.Call.Kind
  )
    async throws
  {
    store.inject(.error(DiskFull())) { $0.kind == kind && $0.number == 2 }
    func makeCall() async throws {
      switch kind {
      case .open: try await store.open()
      case .apply: _ = try await store.apply([], durability: .durable)
      case .claim:
        let request = ClaimRequest(limit: 1, names: [:], now: time.clock.date)
        _ = try await store.claim(request)
      case .tasks: _ = try await store.tasks(matching: TaskFilter(), after: nil, limit: 1)
      case .count: _ = try await store.count(matching: TaskFilter())
      case .contains: _ = try await store.contains(TaskFilter())
      case .census: _ = try await store.census(at: time.clock.date)
      case .value: _ = try await store.value(named: "a")
      case .memory: _ = try await store.memory(of: TaskID(high: 1, low: 1))
      case .close: try await store.close()
      case .destroy: try await store.destroy()
      }
    }
    if kind == .destroy { try await store.open() } else { try await makeCall() }
    await #expect(throws: DiskFull.self) { try await makeCall() }
    try await makeCall()
    #expect(store.calls.map(\.number) == [1, 2, 3])
    #expect(store.calls.dropFirst().allSatisfy { $0.kind == kind })
  }

  @Test func `a fault can depend on the changes of a call, which are recorded`() async throws {
    store.inject(.error(DiskFull())) { call in
      call.changes.contains {
        if case .insert(let record, _) = $0 { record.priority == .low } else { false }
      }
    }
    try await queue.enqueue(Page())
    await #expect(throws: DiskFull.self) { try await queue.enqueue(Page(), priority: .low) }
    let applied = store.calls.filter { $0.kind == .apply }
    #expect(applied.map(\.changes.count) == [1, 1])
    #expect(applied.map(\.description) == applied.map { "\($0.number). apply" })
  }

  @Test(arguments: [FaultInjectingStore.Moment.beforeEffect, .afterEffect])
  func `a call that hangs continues when it is released`(moment: FaultInjectingStore.Moment)
    async throws
  {
    store.inject(.hang, moment) { $0.kind == .apply }
    async let task = queue.enqueue(Page())
    try await store.waitForHeldCalls()
    #expect(try await storedCount == (moment == .beforeEffect ? 0 : 1))
    #expect(store.letGo() == 1)
    #expect(try await task.isNew)
    #expect(try await storedCount == 1)
    #expect(store.letGo() == 0)
  }

  @Test func `a call that hangs keeps hanging when its caller is cancelled`() async throws {
    store.inject(.hang) { $0.kind == .apply }
    let log = Log<String>()
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { [queue] in
        try await queue.enqueue(Page())
        log.add("enqueued")
      }
      try await store.waitForHeldCalls()
      group.cancelAll()
      try await time.clock.sleep(for: .seconds(60))
      log.add("released")
      store.letGo()
      try await group.waitForAll()
    }
    #expect(log.entries == ["released", "enqueued"])
  }

  @Test func `a call can hang and then fail`() async throws {
    store.inject(.hang) { $0.kind == .apply }
    store.inject(.error(DiskFull())) { $0.kind == .apply }
    async let task = queue.enqueue(Page())
    try await store.waitForHeldCalls(count: 1)
    store.letGo()
    do {
      _ = try await task
      Issue.record("the call did not fail")
    } catch {
      #expect(error is DiskFull)
    }
    #expect(try await storedCount == 0)
  }

  @Test
  func `waitForHeldCalls() returns when enough calls hang, and throws when the task is cancelled`()
    async throws
  {
    store.inject(.hang, times: nil) { $0.kind == .count }
    async let first = queue.count
    try await store.waitForHeldCalls(count: 1)
    let error = await #expect(throws: CancellationError.self) {
      try await withThrowingTaskGroup(of: Void.self) { [store] group in
        group.addTask { try await store.waitForHeldCalls(count: 2) }
        group.cancelAll()
        try await group.waitForAll()
      }
    }
    #expect(error != nil)
    async let second = queue.count
    try await store.waitForHeldCalls(count: 2)
    store.restore()
    let counts = try await [first, second]
    #expect(counts == [0, 0])
  }

  @Test(arguments: [FaultInjectingStore.Moment.beforeEffect, .afterEffect])
  func `after the store is restored, a running call meets no further fault`(
    moment: FaultInjectingStore.Moment
  ) async throws {
    store.inject(.delay(.seconds(10), on: time.clock)) { $0.kind == .apply }
    store.inject(.hang, moment) { $0.kind == .apply }
    store.inject(.error(DiskFull()), .afterEffect) { $0.kind == .apply }
    async let task = queue.enqueue(Page())
    try await time.clock.sleep(for: .seconds(1))
    store.restore()
    _ = try await task
    #expect(try await storedCount == 1)
  }

  @Test func `a fault that is injected for zero calls affects no call`() async throws {
    store.inject(.error(DiskFull()), times: 0) { _ in true }
    #expect(try await queue.count == 0)
  }

  @Test func `an injected delay uses the clock, and can come before or after the effect`()
    async throws
  {
    store.inject(.delay(.seconds(10), on: time.clock)) { $0.kind == .apply }
    async let first = queue.enqueue(Page())
    try await time.clock.sleep(for: .seconds(9))
    #expect(try await storedCount == 0)
    _ = try await first
    #expect(time.clock.now.offset == .seconds(10))
    store.inject(.delay(.seconds(10), on: time.clock), .afterEffect) { $0.kind == .apply }
    async let second = queue.enqueue(Page())
    try await time.clock.sleep(for: .seconds(1))
    #expect(try await storedCount == 2)
    _ = try await second
    #expect(time.clock.now.offset == .seconds(20))
  }

  @Test func `when a store is cut off, every call fails until the store is restored`()
    async throws
  {
    try await queue.enqueue(Page())
    store.cutOff(throwing: Unreachable())
    await #expect(throws: Unreachable.self) { try await queue.enqueue(Page()) }
    await #expect(throws: Unreachable.self) { try await queue.count }
    #expect(try await storedCount == 1)
    store.restore()
    #expect(try await queue.count == 1)
  }

  @Test func `a queue continues when its store is restored after a cut-off`() async throws {
    let log = Log<Int>()
    await queue.register(Page.self) { page, _ in log.add(page.number) }
    try await queue.enqueue(contentsOf: (1...5).map { Page(number: $0) })
    store.cutOff(throwing: Unreachable())
    await #expect(throws: Unreachable.self) { try await queue.runAvailable() }
    store.restore()
    try await queue.runAvailable()
    #expect(log.entries.sorted() == [1, 2, 3, 4, 5])
    #expect(try await storedCount == 0)
  }

  @Test func `sharing comes from the underlying store, and appliesAtOnce is false by default`() {
    #expect(store.sharing == nil)
    #expect(!store.appliesAtOnce)
    #expect(FaultInjectingStore(appliesAtOnce: true).appliesAtOnce)
  }

  @Test func `a slow call completes although its caller is cancelled`() async throws {
    store.inject(.delay(.seconds(60), on: time.clock)) { $0.kind == .apply }
    try await withThrowingTaskGroup(of: Void.self) { [queue] group in
      group.addTask { try await queue.enqueue(Page()) }
      try await time.clock.sleep(for: .seconds(1))
      group.cancelAll()
      try await group.waitForAll()
    }
    #expect(try await storedCount == 1)
    #expect(time.clock.now.offset == .seconds(1))
  }
}
