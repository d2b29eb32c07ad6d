import Foundation
import Synchronization

@testable import SteadfastQueue

/// Performs a workload with the real store on a simulated disk, and records its history.
final class WorkloadRun: Sendable {
  private struct State {
    var core: JSONFileCore
    var caller: SimulatedCaller
    var events: [(moment: Int, event: History.Event)] = []
    var callCount = 0
    /// The numbers of calls that were made and have not returned.
    var openCalls: [Int] = []
    /// The number of the last call that is known to have submitted changes.
    var lastSubmitted = 0
    /// The submissions that were pending when submissions were last recorded.
    var lastRecorded: [Submission] = []
    var isOver = false
  }

  private let workload: Workload
  private let disk: SimulatedDisk
  private let executor: ManualExecutor
  private let makeCore: @Sendable () -> JSONFileCore
  private let state: Mutex<State>

  /// Makes a run whose store uses the disk that `wrap` returns.
  init(
    _ workload: Workload,
    seed: UInt64,
    disk: SimulatedDisk = SimulatedDisk(),
    wrap: @escaping @Sendable (any JournalStorage) -> any JournalStorage = { $0 }
  ) {
    self.workload = workload
    self.disk = disk
    let executor = ManualExecutor { disk.state.withLock { $0.log.count } }
    self.executor = executor
    makeCore = {
      JSONFileCore(
        URL(filePath: "/queue.jsonl"),
        flushing: workload.flushing,
        options: JSONFileStore.Options(reservedSpace: workload.reservedSpace),
        compactionPolicy: CompactionPolicy(
          minimumSize: workload.compactionSize,
          spareSize: 0,
          stepSize: 200,
          flushSize: 500
        ),
        date: { .seconds(0) },
        thread: { executor }
      ) { (nil, wrap(disk)) }
    }
    state = Mutex(State(core: makeCore(), caller: SimulatedCaller(workload, seed: seed)))
  }

  /// Runs the workload to its end.
  func history() -> History {
    Task(executorPreference: executor) {
      await self.perform()
      self.state.withLock { $0.isOver = true }
    }
    executor.beforeGuests { self.recordGuestClaim() }
    executor.onYield {
      guard self.state.withLock({ $0.caller.happens(inPercent: 70) }) else { return }
      self.executor.runTasks()
      self.recordSubmissions()
      guard self.executor.doJob() else { return }
      self.executor.runTasks()
      // When the flush has ended, the pending changes are written at once.
      self.recordSubmissions()
    }
    executor.runTasks()
    while !state.withLock({ $0.isOver }) {
      recordSubmissions()
      guard executor.doJob() else { preconditionFailure("the workload waits, but no job is left") }
      executor.runTasks()
    }
    let events = state.withLock { $0.events }
    return History(
      operations: disk.log,
      events: events.enumerated()
        .sorted { ($0.element.moment, $0.offset) < ($1.element.moment, $1.offset) }
        .map(\.element)
    )
  }

  // MARK: The history

  private func record(_ event: History.Event, at moment: Int? = nil) {
    let moment = moment ?? disk.state.withLock { $0.log.count }
    state.withLock { $0.events.append((moment, event)) }
  }

  /// Records the batches that the thread is about to write.
  private func recordSubmissions() {
    let (core, calls) = state.withLock { ($0.core, $0.openCalls) }
    let submissions = core.state.withLock(\.pipeline.all)
    guard !submissions.isEmpty else { return }
    precondition(submissions.count == calls.count, "calls and submissions do not agree")
    let last = state.withLock { $0.lastSubmitted }
    let batches = zip(submissions, calls).filter { $1 > last }.map { submission, call in
      History.Batch(call: call, entries: submission.entries)
    }
    state.withLock { state in
      state.lastSubmitted = calls.last ?? last
      state.lastRecorded = submissions
    }
    if !batches.isEmpty { record(.submitted(batches, before: 0)) }
  }

  /// Records the claim that a caller is about to write before the pending changes.
  private func recordGuestClaim() {
    let (core, call, lastRecorded) = state.withLock {
      ($0.core, $0.openCalls.last, $0.lastRecorded)
    }
    let pending = core.state.withLock(\.pipeline.pending)
    let claims = pending.filter(\.isClaim).map { History.Batch(call: call, entries: $0.entries) }
    // A caller writes its claim at once, so at most one claim is pending.
    precondition(claims.count == 1, "a caller has left its claim pending")
    let count = pending.count { submission in
      !submission.lines.isEmpty && lastRecorded.contains { $0 === submission }
    }
    record(.submitted(claims, before: count))
  }

  // MARK: The workload

  private func perform() async {
    planFaults()
    guard await open() else { return }
    for _ in 0..<workload.rounds {
      let calls = state.withLock { $0.caller.nextCalls() }
      await withTaskGroup(of: Void.self) { group in
        for call in calls {
          group.addTask {
            await self.perform(call)
            // A claim returns while the changes that were written with it are being flushed.
            guard let next = self.state.withLock({ $0.caller.nextCallAtOnce() }) else { return }
            await self.perform(next)
          }
        }
      }
      recordServedTasks()
      if state.withLock({ $0.caller.happens(inPercent: 40) }) { await letTimePass() }
      let (mustRestart, closes) = state.withLock { state in
        let restarts = state.caller.happens(inPercent: workload.restartShare)
        return (restarts || state.core.isPoisoned, state.caller.happens(inPercent: 50))
      }
      guard mustRestart else { continue }
      if closes { await close() }
      guard await restart() else { return }
    }
    await close()
    // Without a crash, the file is opened once more.
    if await restart() { await close() }
  }

  private func recordServedTasks() {
    let core = state.withLock { $0.core }
    guard !core.isPoisoned else { return }
    record(.served(digest: core.read { $0.digest() }))
  }

  private func letTimePass() async {
    let core = state.withLock { $0.core }
    executor.letTimePass()
    // Jobs run in order, so after this call, all due jobs have run.
    guard (try? await core.statistics()) != nil else { return }
    if case .atMostEvery = workload.flushing.moment { record(.intervalPassed) }
  }

  private func planFaults() {
    for (call, fault) in state.withLock({ $0.caller.faults() }) {
      disk.plan(fault, atCall: call)
    }
  }

  private func open() async -> Bool {
    let core = state.withLock { $0.core }
    // Later calls have no planned faults, so an attempt must succeed.
    var reason = ""
    for _ in 0...SimulatedCaller.lastFaultyCall {
      do {
        try await core.open()
        record(.opened(digest: core.read { $0.digest() }))
        return true
      } catch {
        reason = "\(error)"
      }
    }
    record(.gaveUp(reason: reason))
    return false
  }

  private func close() async {
    let (core, destroys) = state.withLock { state in
      (state.core, state.caller.happens(inPercent: workload.destructionShare))
    }
    if destroys, !core.isPoisoned {
      record(.destroying)
      if (try? await core.destroy()) != nil { record(.destroyed) }
    } else if (try? await core.close()) != nil {
      record(.closed)
    }
  }

  private func restart() async -> Bool {
    executor.dropJobs()
    state.withLock { state in
      state.core = makeCore()
      state.caller.leases = []
    }
    return await open()
  }

  /// Records that a call begins, and returns its number.
  ///
  /// A call is repeated, in place of `old`, if its result depended on changes being written.
  private func beginCall(inPlaceOf old: Int? = nil) -> (core: JSONFileCore, number: Int) {
    state.withLock { state in
      state.openCalls.removeAll { $0 == old }
      state.callCount += 1
      state.openCalls.append(state.callCount)
      return (state.core, state.callCount)
    }
  }

  private func perform(_ call: SimulatedCaller.Call) async {
    var (core, number) = beginCall()
    let event: History.Event
    do {
      switch call {
      case .apply(let changes, let durability):
        let (batch, lines) = try core.prepare(changes)
        while try await core.store(batch, lines: lines, durability: durability).isEmpty,
          !batch.isEmpty
        {
          number = beginCall(inPlaceOf: number).number
        }
        event = .acknowledged(call: number, survives: workload.survival(durability))
      case .claim(let request):
        let claim = try await core.claim(request)
        state.withLock { $0.caller.leases += claim.tasks.map(\.lease) }
        event = .acknowledged(call: number, survives: .endOfProcess)
      }
    } catch let error as JSONFileError where error.code == .systemCall {
      event = .failed(call: number, isUnknown: false)
    } catch {
      event = .failed(call: number, isUnknown: true)
    }
    record(event, at: executor.resumptionMoment)
    state.withLock { $0.openCalls.removeAll { $0 == number } }
  }
}

extension Workload {
  fileprivate func survival(_ durability: Durability) -> History.Survival {
    guard durability == .durable else { return .endOfProcess }
    return switch flushing.moment {
    case .eachBatch: .powerCuts
    case .atMostEvery: .laterPowerCuts
    case .leftToSystem: .endOfProcess
    }
  }
}

extension Submission {
  /// The entries of the item's lines: one for each accepted change, or for each claimed task.
  fileprivate var entries: [JournalEntry] {
    let count =
      switch caller {
      case .changes(let staged, _, _): staged.count(where: \.isKept)
      case .claim(let claim, _): claim.tasks.count
      }
    precondition(lines.count == count, "a change has no line, or a line has no change")
    return lines.map(\.entry)
  }
}

extension JournalBody {
  /// The entry that the line encodes.
  var entry: JournalEntry {
    var bytes: [UInt8] = []
    JournalLine.append(self, sequence: 1, firstUnsynced: 1, isContinued: false, to: &bytes)
    var decoder = JournalDecoder(bytes)
    guard let line = JournalLine(bytes, 0..<bytes.count - 1),
      let entry = try? decoder.readEntry(of: line)
    else { preconditionFailure("a written line can't be read") }
    return entry
  }
}

extension JSONFileCore {
  fileprivate var isPoisoned: Bool {
    state.withLock { state in
      if case .poisoned = state.phase { true } else { false }
    }
  }
}
