import SteadfastTesting
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(5))) struct RealWorkInTurnTests {
  private struct Offline: Error {}

  private let trace = Trace()

  private func useDevice(_ name: String, hops: Int = 1) async {
    await Device(trace).performWork(named: name, hops: hops)
  }

  // MARK: Turns

  @Test(arguments: 0..<20)
  func `operations run one at a time, however long each operation takes`(round: Int) async throws {
    try await withVirtualTime { time in
      await withTaskGroup { group in
        for work in 0..<4 {
          group.addTask {
            await RealWork.performInTurn {
              await useDevice("\(work)", hops: (work + round) * 7 % 20)
            }
            trace.note("\(work) continues")
          }
        }
      }
    }
    #expect(trace.entries == (0..<4).flatMap { ["\($0) begins", "\($0) ends", "\($0) continues"] })
  }

  @Test func `an operation starts, and its caller continues, when nothing else can run`()
    async throws
  {
    try await withVirtualTime { _ in
      async let other: Void = {
        for step in 0..<3 {
          trace.note("step \(step)")
          await Task.yield()
        }
      }()
      await RealWork.performInTurn { await useDevice("work") }
      trace.note("its caller continues")
      await other
    }
    #expect(
      trace.entries == [
        "step 0", "step 1", "step 2", "work begins", "work ends", "its caller continues",
      ]
    )
  }

  @Test func `an operation that never suspends waits for the operation before it`() async throws {
    try await withVirtualTime { _ in
      async let first: Void = RealWork.performInTurn { await useDevice("first") }
      async let second: Void = RealWork.performInTurn { trace.note("second") }
      await first
      await second
    }
    #expect(trace.entries == ["first begins", "first ends", "second"])
  }

  @Test(arguments: [VirtualTime.Mode.automatic, .manual])
  func `the time stands still until all operations have ended`(mode: VirtualTime.Mode) async throws
  {
    try await withVirtualTime(mode) { time in
      async let sleeper: Void = time.clock.sleep(for: .seconds(1))
      await withTaskGroup { group in
        for work in 0..<4 {
          group.addTask { await RealWork.performInTurn { await useDevice("\(work)", hops: 3) } }
        }
      }
      #expect(time.clock.now.offset == .zero)
      await time.advance(by: .seconds(1))
      try await sleeper
    }
  }

  @Test func `advance() returns after the operations that start at the new time`() async throws {
    try await withVirtualTime(.manual) { time in
      async let worker: Void = {
        try await time.clock.sleep(for: .seconds(1))
        for _ in 0..<3 { await RealWork.performInTurn { await useDevice("work") } }
      }()
      await time.advance(by: .seconds(1))
      #expect(trace.entries.count == 6)
      try await worker
    }
  }

  // MARK: Results and cancellation

  @Test
  func `performInTurn() passes on results and typed errors, inside and outside a virtual time`()
    async throws
  {
    @Sendable func checkResultAndError() async {
      #expect(await RealWork.performInTurn { 7 } == 7)
      do throws(Offline) {
        try await RealWork.performInTurn { () async throws(Offline) in throw Offline() }
        Issue.record("the error was lost")
      } catch {}
    }
    await checkResultAndError()
    // The second time, an operation follows one that has thrown an error.
    try await withVirtualTime { _ in
      await checkResultAndError()
      await checkResultAndError()
    }
  }

  @Test func `the operation of a cancelled task still runs, after the earlier operations`()
    async throws
  {
    try await withVirtualTime { _ in
      await withTaskGroup { group in
        for work in 0..<3 {
          group.addTask {
            await RealWork.performInTurn { await useDevice("\(work)") }
            trace.note("\(work) \(Task.isCancelled ? "was cancelled" : "was not cancelled")")
          }
        }
        group.cancelAll()
      }
    }
    #expect(
      trace.entries
        == (0..<3).flatMap { ["\($0) begins", "\($0) ends", "\($0) was cancelled"] }
    )
  }

  // MARK: Nested work

  @Test func `an operation inside another operation starts at once, also in a child task`()
    async throws
  {
    try await withVirtualTime { _ in
      async let outer: Void = RealWork.performInTurn {
        await RealWork.performInTurn { await useDevice("inner") }
        await withTaskGroup { group in
          group.addTask { await RealWork.performInTurn { await useDevice("child") } }
        }
      }
      async let next: Void = RealWork.performInTurn { await useDevice("next") }
      await outer
      await next
    }
    #expect(
      trace.entries == [
        "inner begins", "inner ends", "child begins", "child ends", "next begins", "next ends",
      ]
    )
  }

  @Test func `an operation runs even if other real work waits for the operation`() async throws {
    try await withVirtualTime { time in
      await time.withRealWork {
        await RealWork.performInTurn { await useDevice("work") }
      }
    }
    #expect(trace.entries == ["work begins", "work ends"])
  }

  @Test func `an operation can run a nested virtual time that has operations too`() async throws {
    try await withVirtualTime { outer in
      try await RealWork.performInTurn {
        try await withVirtualTime { inner in
          await withTaskGroup { group in
            for work in 0..<2 {
              group.addTask { await RealWork.performInTurn { await useDevice("\(work)", hops: 5) } }
            }
          }
          try await inner.clock.sleep(for: .seconds(1))
        }
      }
      #expect(outer.clock.now.offset == .zero)
      await RealWork.performInTurn { await useDevice("outer") }
    }
    #expect(
      trace.entries == [
        "0 begins", "0 ends", "1 begins", "1 ends", "outer begins", "outer ends",
      ]
    )
  }

  // MARK: Beyond the virtual time's own tasks

  @MainActor @Test func `operations on the main actor also run one at a time`() async throws {
    try await withVirtualTime { @MainActor time in
      async let later: Void = time.clock.sleep(for: .seconds(1))
      for work in 0..<3 { await RealWork.performInTurn { await useDevice("\(work)") } }
      #expect(time.clock.now.offset == .zero)
      try await later
    }
    #expect(trace.entries == (0..<3).flatMap { ["\($0) begins", "\($0) ends"] })
  }

  @Test(.virtualTime(order: .shuffled(seed: 3)))
  func `operations run one at a time in a test with the trait`()
    async throws
  {
    let time = try #require(VirtualTime.current)
    async let later: Void = time.clock.sleep(for: .seconds(1))
    await withTaskGroup { group in
      for _ in 0..<4 {
        group.addTask { await RealWork.performInTurn { await useDevice("work", hops: 3) } }
      }
    }
    #expect(trace.entries == (0..<4).flatMap { _ in ["work begins", "work ends"] })
    #expect(time.clock.now.offset == .zero)
    try await later
  }

  @Test func `a body that can't continue fails only after its operation has ended`() async {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime(.manual) { time in
        async let work: Void = RealWork.performInTurn { await useDevice("work", hops: 5) }
        try await time.clock.sleep(for: .seconds(1))
        await work
      }
    }
    #expect(error?.code == .stuck)
    #expect(trace.entries == ["work begins", "work ends"])
  }

  @Test func `a body that is cancelled because it can't continue can still perform an operation`()
    async
  {
    let error = await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime(.manual) { time in
        do {
          try await time.clock.sleep(for: .seconds(1))
        } catch {
          await RealWork.performInTurn { await useDevice("clean-up") }
          throw error
        }
      }
    }
    #expect(error?.code == .stuck)
    #expect(trace.entries == ["clean-up begins", "clean-up ends"])
  }

  @Test func `an operation that is running when the virtual time ends can end later`() async throws
  {
    let (begun, release) = (Gate(), Gate())
    let tasks = Mutex<[Task<Void, Never>]>([])
    try await withVirtualTime { time in
      let works = (0..<3).map { work in
        Task(executorPreference: time.executor) {
          await RealWork.performInTurn {
            begun.open()
            // Detached, so that the virtual time does not see the wait.
            await Task.detached { await release.pass() }.value
          }
          await RealWork.performInTurn { trace.note("\(work)") }
        }
      }
      tasks.withLock { $0 = works }
      // Wait in withRealWork, so that the body can continue while the first operation runs.
      await time.withRealWork { await Task.detached { await begun.pass() }.value }
    }
    #expect(trace.entries == [])
    release.open()
    for task in tasks.withLock({ $0 }) { await task.value }
    #expect(Set(trace.entries) == ["0", "1", "2"])
  }

  @Test func `a body that withVirtualTime no longer waits for can still perform an operation`()
    async
  {
    let late = Mutex<CheckedContinuation<Void, Never>?>(nil)
    let ended = Gate()
    await #expect(throws: VirtualTimeError.self) {
      try await withVirtualTime { _ in
        await withCheckedContinuation { continuation in late.withLock { $0 = continuation } }
        await RealWork.performInTurn { await useDevice("work") }
        ended.open()
      }
    }
    late.withLock { $0.take() }?.resume()
    await ended.pass()
    #expect(trace.entries == ["work begins", "work ends"])
  }
}
