import Foundation
import Synchronization

@testable import SteadfastQueue

/// Performs a workload with the real store on a simulated disk, and notes its history.
final class WorkloadRun: Sendable {
  private struct State {
    var core: JSONFileCore
    var caller: SimulatedCaller
    var events: [(moment: Int, event: History.Event)] = []
    var callCount = 0
    /// Calls that were made and have not returned.
    var openCalls: [Int] = []
    /// The last call that is known to have been submitted.
    var lastSubmitted = 0
    /// What waited when it was noted what is to be written.
    var noted: [Submission] = []
    var isOver = false
  }

  private let workload: Workload
  private let disk: SimulatedDisk
  private let executor: ManualExecutor
  private let makeCore: @Sendable () -> JSONFileCore
  private let state: Mutex<State>

  /// Makes a run; `wrap` puts something between the store and the disk.
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
    executor.beforeGuests { self.noteGuest() }
    executor.whileHandedOn {
      guard self.state.withLock({ $0.caller.hits(70) }) else { return }
      self.executor.runTasks()
      self.noteSubmissions()
      guard self.executor.doJob() else { return }
      self.executor.runTasks()
      // When the flush has ended, what has gathered is written at once.
      self.noteSubmissions()
    }
    executor.runTasks()
    while !state.withLock({ $0.isOver }) {
      noteSubmissions()
      guard executor.doJob() else { preconditionFailure("the workload waits for nothing") }
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

  private func note(_ event: History.Event, at moment: Int? = nil) {
    let moment = moment ?? disk.state.withLock { $0.log.count }
    state.withLock { $0.events.append((moment, event)) }
  }

  /// What the thread is about to write.
  private func noteSubmissions() {
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
      state.noted = submissions
    }
    if !batches.isEmpty { note(.submitted(batches, before: 0)) }
  }

  /// Notes the claim that its caller is about to write, before the changes that gather.
  private func noteGuest() {
    let (core, call, noted) = state.withLock { ($0.core, $0.openCalls.last, $0.noted) }
    let pending = core.state.withLock(\.pipeline.pending)
    let claims = pending.filter(\.isClaim).map { History.Batch(call: call, entries: $0.entries) }
    // A caller writes its claim at once, so only the call that was made last has one.
    precondition(claims.count == 1, "a claim waits that its caller could have written")
    let count = pending.count { submission in
      !submission.lines.isEmpty && noted.contains { $0 === submission }
    }
    note(.submitted(claims, before: count))
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
            // A claim is answered while the changes that were written with it are being flushed.
            guard let next = self.state.withLock({ $0.caller.nextCallAtOnce() }) else { return }
            await self.perform(next)
          }
        }
      }
      noteServed()
      if state.withLock({ $0.caller.hits(40) }) { await letTimePass() }
      let (mustRestart, closes) = state.withLock { state in
        let restarts = state.caller.hits(workload.restartShare)
        return (restarts || state.core.isPoisoned, state.caller.hits(50))
      }
      guard mustRestart else { continue }
      if closes { await close() }
      guard await restart() else { return }
    }
    await close()
    // What the run has come to is looked at once more without a crash.
    if await restart() { await close() }
  }

  private func noteServed() {
    let core = state.withLock { $0.core }
    guard !core.isPoisoned else { return }
    note(.served(digest: core.read { $0.digest() }))
  }

  private func letTimePass() async {
    let core = state.withLock { $0.core }
    executor.letTimePass()
    // Jobs are done in turn: after this one, those are done whose time has come.
    guard (try? await core.statistics()) != nil else { return }
    if case .atMostEvery = workload.flushing.moment { note(.intervalPassed) }
  }

  private func planFaults() {
    for (call, fault) in state.withLock({ $0.caller.faults() }) {
      disk.plan(fault, atCall: call)
    }
  }

  private func open() async -> Bool {
    let core = state.withLock { $0.core }
    // There is an end of the faults that are planned.
    var reason = ""
    for _ in 0...SimulatedCaller.lastFaultyCall {
      do {
        try await core.open()
        note(.opened(digest: core.read { $0.digest() }))
        return true
      } catch {
        reason = "\(error)"
      }
    }
    note(.gaveUp(reason: reason))
    return false
  }

  private func close() async {
    let (core, destroys) = state.withLock { state in
      (state.core, state.caller.hits(workload.destructionShare))
    }
    if destroys, !core.isPoisoned {
      note(.destroying)
      if (try? await core.destroy()) != nil { note(.destroyed) }
    } else if (try? await core.close()) != nil {
      note(.closed)
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

  /// Notes that a call is made, or is made again because its answer depends on what was on its way.
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
        while try await core.store(batch, lines, durability).isEmpty, !batch.isEmpty {
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
    note(event, at: executor.resumptionMoment)
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
  /// What its lines say: one line for each change that is kept, or for each task that is claimed.
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
  /// What the line says.
  var entry: JournalEntry {
    var bytes: [UInt8] = []
    JournalLine.append(self, sequence: 1, firstUnsynced: 1, isContinued: false, to: &bytes)
    var decoder = JournalDecoder(bytes)
    guard let line = JournalLine(bytes, 0..<bytes.count - 1),
      let entry = try? decoder.entry(of: line)
    else { preconditionFailure("a line was written that can't be read") }
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
