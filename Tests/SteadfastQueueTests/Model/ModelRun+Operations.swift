import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// What is done with the queue.
extension ModelRun {
  /// Begins an operation; all but a few do not wait for it.
  func perform(_ operation: ModelOperation) async throws {
    let queue = queue
    switch operation {
    case .enqueue(let task): start { await self.enqueue(task) }
    case .ask(let request, let index): ask(request, index)
    case .askTagged(let request, let tag): ask(request, tag: tag)
    case .outcome(let index): askForOutcome(index)
    case .pauseQueue:
      start { await queue.pause() }
      state.withLock { $0.isPaused = true }
      try await settle()
    case .resumeQueue:
      start { await queue.resume() }
      state.withLock { $0.isPaused = false }
      try await settle()
    case .pauseStore: try await changeStoredPause { try await queue.pause(durability: .durable) }
    case .resumeStore: try await changeStoredPause { try await queue.resume(durability: .relaxed) }
    case .setValue(let number): start { await self.setValue(number) }
    case .setCondition(let holds):
      start { await queue.setCondition("a", holds: holds) }
      state.withLock { $0.conditions = holds ? ["a"] : [] }
      try await settle()
    case .run: run()
    case .runAvailable: runAvailable()
    case .cancelRun: cancelRun()
    case .shutDown(let limit): shutDown(within: .seconds(limit))
    case .restartQueue: try await restart()
    case .registerStray: start { await self.registerStray(queue) }
    case .advance(let seconds):
      await time.advance(by: .seconds(seconds))
      try await settle()
    case .step(let seconds): step(seconds)
    case .settle: try await settle()
    }
  }

  private func changeStoredPause(_ change: @escaping @Sendable () async throws -> Void) async throws
  {
    start {
      do { try await change() } catch { self.failed("a change of the stored pause", error) }
    }
    try await settle()
  }

  private func setValue(_ number: Int) async {
    do {
      try await queue.setValue([UInt8(number)], named: "number")
      let isNumber = try await queue.setValue(nil, named: "number", replacing: [UInt8(number)])
      // Another call may have set another value.
      let next = try await queue.value(named: "number")
      if isNumber, next == [UInt8(number)] { violate("the value \(number) is there again") }
    } catch {
      failed("setValue", error)
    }
  }

  private func step(_ seconds: Int) {
    let before = time.clock.date
    ledger.update { $0.setBack += max(0, Double(-seconds)) }
    time.clock.setDate(before + Double(seconds))
    state.withLock { state in
      // Until the alarm has looked, only what both dates have reached is sure to be begun.
      let earlier = min(before, time.clock.date)
      state.lastStep = (time.clock.now, min(state.lastStep?.date ?? earlier, earlier))
    }
  }

  // MARK: Tasks

  func enqueue(_ task: ModelOperation.NewTask) async {
    let now = time.clock.date
    let works = ledger.update { ledger in
      (0..<task.count).map { _ in
        ledger.lastNumber += 1
        ledger.specifications[ledger.lastNumber] = (task, now)
        return ModelWork(number: ledger.lastNumber, acts: task.acts)
      }
    }
    do {
      let tasks =
        switch task.name {
        case .plain: try await enqueue(works.map(PlainJob.init), task, now)
        case .limited: try await enqueue(works.map(LimitedJob.init), task, now)
        case .stray: try await enqueue(works.map(StrayJob.init), task, now)
        }
      ledger.update { ledger in
        for task in tasks {
          ledger.require(ledger.entries[task.id] != nil, "what was enqueued is not stored")
        }
      }
      state.withLock { state in for task in tasks { state.handles[task.id] = task } }
    } catch let error as TaskQueueError where error.code == .duplicate && task.policy == .reject {
    } catch let error as TaskQueueError where error.code == .invalidArgument {
    } catch {
      failed("enqueue", error)
      ledger.update { $0.requireUnknown(works) }
    }
  }

  private func enqueue(
    _ jobs: [some ModelPayload],
    _ task: ModelOperation.NewTask,
    _ now: Date
  ) async throws -> [EnqueuedTask] {
    try await queue.enqueue(
      contentsOf: jobs,
      options: TaskOptions(
        availableDate: task.delay.map { now + Double($0) },
        maxRetries: task.maxRetries,
        usesBackoff: task.usesBackoff,
        priority: TaskQueue.Priority(rawValue: task.priority),
        timeLimit: task.timeLimit.map { .seconds($0) },
        expiryDate: task.lifetime.map { now + Double($0) },
        tags: Set([task.tag].compactMap(\.self)),
        onDuplicate: task.policy,
        uniqueFor: task.uniqueFor.map { .seconds($0) },
        maxDelay: task.maxDelay.map { .seconds($0) },
        inOrder: task.order,
        holdsOrder: task.holdsOrder,
        requires: task.requiresCondition ? ["a"] : []
      )
    ) { _ in task.key }
  }

  private func ask(_ request: ModelOperation.Request, _ index: Int) {
    guard let id = ledger.update({ $0.record(index) }) else { return }
    let queue = queue
    ledger.update { _ = $0.entries[id]?.asked.insert(request) }
    start {
      do {
        let was =
          switch request {
          case .cancel: try await queue.cancel(id)
          case .pause: try await queue.pause(id)
          case .resume: try await queue.resume(id)
          case .restart: try await queue.restart(id)
          case .reschedule: try await queue.reschedule(id)
          case .update: try await self.update(id)
          case .remove: try await queue.remove(id)
          }
        self.ledger.update { ledger in
          // Without a task that it applies to, nothing is done later either.
          if !was, request == .remove || request == .restart {
            ledger.require(ledger.table.record(of: id) == nil, "\(ledger.label(id)): \(request)")
          }
        }
      } catch let error as TaskQueueError where error.code == .duplicate && request == .restart {
      } catch {
        self.failed("\(request)", error)
      }
    }
  }

  /// Whether the task was changed; one that is being performed can't be.
  private nonisolated func update(_ id: TaskID) async throws -> Bool {
    do {
      return try await queue.update(id, priority: .high)
    } catch let error as TaskQueueError where error.code == .isRunning {
      return false
    }
  }

  private func ask(_ request: ModelOperation.Request, tag: String) {
    let queue = queue
    ledger.update { ledger in
      for id in ledger.known where ledger.table.record(of: id)?.tags.contains(tag) ?? false {
        ledger.entries[id]?.asked.insert(request)
      }
      ledger.askedTags[tag, default: []].append(request)
    }
    start {
      do {
        let filter = TaskFilter(tags: [tag])
        switch request {
        case .cancel: _ = try await queue.cancel(matching: filter)
        case .restart: _ = try await queue.restart(matching: filter)
        case .reschedule: _ = try await queue.reschedule(matching: filter)
        case .remove: _ = try await queue.remove(matching: filter)
        case .pause, .resume, .update: break
        }
      } catch {
        self.failed("\(request) of all tagged \(tag)", error)
      }
      self.ledger.update { ledger in
        guard let index = ledger.askedTags[tag]?.firstIndex(of: request) else { return }
        ledger.askedTags[tag]?.remove(at: index)
      }
    }
  }

  private func askForOutcome(_ index: Int) {
    guard let id = ledger.update({ $0.record(index) }) else { return }
    let (queue, handle) = state.withLock { state in
      state.pendingOutcomes[id, default: 0] += 1
      return (state.queue, state.handles[id])
    }
    start {
      do {
        let task = if let handle { handle } else { try await queue.task(id) }
        guard let outcome = try await task?.outcome() else { return self.isAnswered(id) }
        self.ledger.update { $0.told(outcome, of: id) }
      } catch let error as TaskQueueError where error.code == .unknownTask {
        self.ledger.update { ledger in
          let hasEnded = ledger.entries[id]?.hasEnded ?? false
          ledger.require(hasEnded, "\(ledger.label(id)) is said not to be there")
        }
      } catch let error as TaskQueueError where error.code == .shutDown {
        let isShutDown = self.state.withLock { $0.isShutDown || $0.queue !== queue }
        if !isShutDown { self.violate("outcome() says that the queue is shut down") }
      } catch {
        self.failed("outcome()", error)
      }
      self.isAnswered(id)
    }
  }

  private func isAnswered(_ id: TaskID) {
    state.withLock { $0.pendingOutcomes[id]? -= 1 }
  }
}
