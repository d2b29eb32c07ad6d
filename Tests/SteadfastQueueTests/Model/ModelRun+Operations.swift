import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

extension ModelRun {
  /// Starts an operation, usually without waiting until the operation ends.
  func perform(_ operation: ModelOperation) async throws {
    switch operation {
    case .enqueue(let task): start { await self.enqueue(task) }
    case .ask(let request, let index): ask(request, index)
    case .askTagged(let request, let tag): ask(request, tag: tag)
    case .outcome(let index): askForOutcome(index)
    case .complete(let index): complete(index)
    case .pauseQueue:
      for queue in queues { start { await queue.pause() } }
      state.withLock { $0.isPaused = true }
      try await settle()
    case .resumeQueue:
      for queue in queues { start { await queue.resume() } }
      state.withLock { $0.isPaused = false }
      try await settle()
    case .pauseStore: try await changeStoredPause { try await $0.pause(durability: .durable) }
    case .resumeStore: try await changeStoredPause { try await $0.resume(durability: .relaxed) }
    case .setValue(let number): start { await self.setValue(number) }
    case .setCondition(let holds):
      for queue in queues { start { await queue.setCondition("a", holds: holds) } }
      state.withLock { $0.conditions = holds ? ["a"] : [] }
      try await settle()
    case .run: run()
    case .runAvailable: runAvailable()
    case .cancelRun: cancelRun()
    case .shutDown(let limit): shutDown(within: .seconds(limit))
    case .restartQueue: try await restart()
    case .registerStray: start { await self.registerStray() }
    case .advance(let seconds):
      await time.advance(by: .seconds(seconds))
      try await settle()
    case .step(let seconds): step(seconds)
    case .settle: try await settle()
    }
  }

  private func changeStoredPause(
    _ change: @escaping @Sendable (TaskQueue) async throws -> Void
  ) async throws {
    for queue in queues {
      start {
        do {
          try await change(queue)
        } catch {
          self.checkError(of: "a change of the stored pause", error)
        }
      }
    }
    try await settle()
  }

  private func setValue(_ number: Int) async {
    // No other call sets the same value.
    let value = state.withLock { state in
      state.valueCount += 1
      return Array("\(number) of call \(state.valueCount)".utf8)
    }
    do {
      try await queue.setValue(value, named: "number")
      let wasThere = try await queue.setValue(nil, named: "number", replacing: value)
      let next = try await queue.value(named: "number")
      if wasThere, next == value { recordViolation("the removed value \(number) has returned") }
    } catch {
      checkError(of: "setValue", error)
    }
  }

  private func step(_ seconds: Int) {
    let before = time.clock.date
    time.clock.setDate(before + Double(seconds))
    state.withLock { state in
      // Until the queue's timer checks the date, only tasks that are due at both dates must start.
      let earlier = min(before, time.clock.date)
      state.lastStep = (time.clock.now, min(state.lastStep?.date ?? earlier, earlier))
    }
  }

  // MARK: Tasks

  func enqueue(_ task: ModelOperation.NewTask) async {
    let now = time.clock.date
    let name = task.isAside && state.withLock { $0.side != nil } ? Self.sideName : ""
    let queue = queue(named: name)
    let after = ledger.update { ledger in Set(task.after.compactMap { ledger.record($0) }) }
    let options = options(of: task, after, now)
    await enqueue(task, after, on: name) { works in
      switch task.name {
      case .plain: try await self.enqueue(works.map(PlainJob.init), task, options, queue)
      case .limited: try await self.enqueue(works.map(LimitedJob.init), task, options, queue)
      case .stray: try await self.enqueue(works.map(StrayJob.init), task, options, queue)
      }
    }
  }

  /// Enqueues tasks by a call of the queue, and checks the call's result or error.
  func enqueue(
    _ task: ModelOperation.NewTask,
    _ after: Set<TaskID> = [],
    on queue: String,
    isMember: Bool = false,
    by call: ([ModelWork]) async throws -> [EnqueuedTask]
  ) async {
    let works = ledger.update {
      $0.specify(task, after, on: queue, at: time.clock.date, isMember: isMember)
    }
    do {
      let tasks = try await call(works)
      ledger.update { ledger in
        for task in tasks {
          ledger.require(ledger.entries[task.id] != nil, "an enqueued task is not stored")
        }
      }
      state.withLock { state in for task in tasks { state.handles[task.id] = task } }
    } catch let error as TaskQueueError where error.code == .duplicate && task.policy == .reject {
    } catch let error as TaskQueueError where error.code == .invalidArgument {
    } catch let error as TaskQueueError where error.code == .unmetDependency && !after.isEmpty {
      ledger.update { $0.requireUnknown(works) }
    } catch {
      checkError(of: "enqueue", error)
      ledger.update { $0.requireUnknown(works) }
    }
  }

  private func enqueue(
    _ jobs: [some ModelPayload],
    _ task: ModelOperation.NewTask,
    _ options: TaskOptions,
    _ queue: TaskQueue
  ) async throws -> [EnqueuedTask] {
    guard task.hasFollower, let last = jobs.last else {
      return try await queue.enqueue(contentsOf: jobs, options: options) { _ in task.key }
    }
    let batch = try await queue.enqueue(
      contentsOf: jobs.dropLast(),
      options: options,
      then: PlainJob(work: last.work),
      followerOptions: TaskOptions(dependencyRule: task.rule)
    )
    return batch.tasks + [batch.follower]
  }

  func options(
    of task: ModelOperation.NewTask,
    _ after: Set<TaskID>,
    _ now: Date
  ) -> TaskOptions {
    TaskOptions(
      availableDate: task.delay.map { now + Double($0) },
      expiryDate: task.lifetime.map { now + Double($0) },
      maxRetries: task.maxRetries,
      usesBackoff: task.usesBackoff,
      timeLimit: task.timeLimit.map { .seconds($0) },
      priority: TaskQueue.Priority(rawValue: task.priority),
      orderKey: task.order,
      blocksOrderOnFailure: task.blocksOrderOnFailure,
      dependencies: after,
      dependencyRule: task.hasFollower ? nil : task.rule,
      onDuplicate: task.key == nil ? nil : task.policy,
      uniqueFor: task.uniqueFor.map { .seconds($0) },
      maxDelay: task.maxDelay.map { .seconds($0) },
      conditions: task.requiresCondition ? ["a"] : [],
      tags: Set([task.tag].compactMap(\.self))
    )
  }

  private func ask(_ request: ModelOperation.Request, _ index: Int) {
    guard let id = ledger.update({ $0.record(index) }) else { return }
    let queue = queue(of: id)
    ledger.update { _ = $0.entries[id]?.asked.insert(request) }
    start {
      do {
        let was =
          switch request {
          case .cancel: try await queue.cancel(id)
          case .pause: try await queue.pause(id)
          case .resume: try await queue.resume(id)
          case .restart: try await queue.retry(id)
          case .reschedule: try await queue.performNow(id)
          case .update: try await self.update(id, in: queue)
          case .remove: try await queue.remove(id)
          case .startOver: try await queue.retry(id, forgetting: true)
          }
        self.ledger.update { ledger in
          // A call that returned `false` must not have an effect later: the task isn't stored.
          if !was, [.remove, .restart, .startOver].contains(request) {
            ledger.require(ledger.table.record(of: id) == nil, "\(ledger.label(id)): \(request)")
          }
        }
      } catch let error as TaskQueueError
        where error.code == .duplicate && [.restart, .startOver].contains(request)
      {
      } catch {
        self.checkError(of: "\(request)", error)
      }
    }
  }

  /// Updates a task, and returns whether it was updated.
  ///
  /// A running task can't be.
  private nonisolated func update(_ id: TaskID, in queue: TaskQueue) async throws -> Bool {
    do {
      return try await queue.update(id, priority: .high)
    } catch let error as TaskQueueError where error.code == .isRunning {
      return false
    }
  }

  private func ask(_ request: ModelOperation.Request, tag: String) {
    let queues = queues
    ledger.update { ledger in
      for id in ledger.known where ledger.table.record(of: id)?.tags.contains(tag) ?? false {
        ledger.entries[id]?.asked.insert(request)
      }
      ledger.askedTags[tag, default: []].append(request)
    }
    start {
      do {
        let filter = TaskFilter(tags: [tag])
        for queue in queues {
          switch request {
          case .cancel: _ = try await queue.cancel(matching: filter)
          case .restart: _ = try await queue.retry(matching: filter)
          case .reschedule: _ = try await queue.performNow(matching: filter)
          case .remove: _ = try await queue.remove(matching: filter)
          case .pause, .resume, .update, .startOver: break
          }
        }
      } catch {
        self.checkError(of: "\(request) of all tagged \(tag)", error)
      }
      self.ledger.update { ledger in
        guard let index = ledger.askedTags[tag]?.firstIndex(of: request) else { return }
        ledger.askedTags[tag]?.remove(at: index)
      }
    }
  }

  private func askForOutcome(_ index: Int) {
    guard let id = ledger.update({ $0.record(index) }) else { return }
    let queue = queue(of: id)
    let handle = state.withLock { state in
      state.pendingOutcomes[id, default: 0] += 1
      return state.handles[id]
    }
    start {
      do {
        let task = if let handle { handle } else { try await queue.task(id) }
        guard let outcome = try await task?.outcome() else { return self.endOutcomeWait(id) }
        self.ledger.update { $0.checkOutcome(outcome, of: id) }
      } catch let error as TaskQueueError where error.code == .unknownTask {
        self.ledger.update { ledger in
          let hasEnded = ledger.entries[id]?.hasEnded ?? false
          ledger.require(hasEnded, "\(ledger.label(id)) is reported as unknown")
        }
      } catch let error as TaskQueueError where error.code == .shutDown {
        let isShutDown = self.state.withLock { state in
          state.isShutDown || !state.queues.contains { $0.queue === queue }
        }
        if !isShutDown { self.recordViolation("outcome() reports a shutdown") }
      } catch {
        self.checkError(of: "outcome()", error)
      }
      self.endOutcomeWait(id)
    }
  }

  private func endOutcomeWait(_ id: TaskID) {
    state.withLock { $0.pendingOutcomes[id]? -= 1 }
  }
}
