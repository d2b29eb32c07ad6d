import Foundation
import Synchronization
import TestSupport

@testable import SteadfastQueue

/// A file in memory, its store, and the executor that does the jobs of both.
struct FlushSetting: Sendable {
  let storage = MemoryStorage()
  let executor = ManualExecutor { 0 }
  let log = Log<String>()
  let core: JSONFileCore

  init() { core = JSONFileCore(storage, executor) }
}

/// A suite of tests that make calls during a flush.
protocol FlushSuite: Sendable {
  var setting: FlushSetting { get }
}

extension FlushSuite {
  var storage: MemoryStorage { setting.storage }
  var executor: ManualExecutor { setting.executor }
  var log: Log<String> { setting.log }
  var core: JSONFileCore { setting.core }

  func insert(_ number: Int, _ durability: Durability = .durable) async {
    do {
      _ = try await core.apply([.insert(.make(number), onDuplicate: .keep)], durability)
      log.add("\(number) stored")
    } catch let error as JSONFileError {
      log.add("\(number) \(error.code == .outcomeUnknown ? "unknown" : "refused")")
    } catch {
      log.add("\(number) \(error)")
    }
  }

  /// Inserts a task and claims tasks concurrently.
  ///
  /// The claim causes all pending changes to be written.
  func insertBesideClaim(_ number: Int) async {
    let core = core
    async let claim = core.claim(
      ClaimRequest(limit: 1, names: ["Note": .max], now: .seconds(0))
    )
    async let insertion: Void = insert(number)
    do {
      log.add("claimed \(try await claim.tasks.numbers)")
    } catch {
      log.add("claimed nothing")
    }
    await insertion
  }

  /// Makes one of the calls during each flush, in order, and runs all jobs that the call causes.
  func duringFlushes(_ calls: (@Sendable () async throws -> Void)...) {
    let left = Mutex(calls[...])
    let (executor, log) = (executor, log)
    executor.onYield {
      guard let call = left.withLock({ $0.popFirst() }) else { return }
      Task(executorPreference: executor) { try await call() }
      executor.runAll()
      log.add("flushed")
    }
  }
}
