import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// A model of two threads, a guest and a semaphore, which take steps in a random order.
struct ThreadsModel {
  private enum Activity: Equatable {
    case asks, works, worksBeside, watches, sleeps
  }

  private var turns = IOScheduler<Int>()
  private var threads = [Activity.asks, .asks]
  private var signals = 0
  private var guestWorks = false
  private let done = Log<Void>()
  private(set) var added = 0
  private(set) var hasOverlapped = false
  var performed: Int { done.count }

  private mutating func wakeIfNeeded() { if turns.countWakeUpIfNeeded() { signals += 1 } }

  mutating func takeStep(using generator: inout SplitMix64) {
    let choice = Int.random(in: 0..<12, using: &generator)
    if choice < 3 {
      added += 1
      turns.add { [done] in done.add(()) }
      wakeIfNeeded()
    } else if choice < 5, turns.beginOutsideJob(at: .now) {
      hasOverlapped = hasOverlapped || threads.contains(.works) || guestWorks
      guestWorks = true
    }
    _ = takeStepWithoutNewJob(using: &generator)
  }

  /// Takes one step without adding a job, and returns whether anything is left to do.
  mutating func takeStepWithoutNewJob(using generator: inout SplitMix64) -> Bool {
    if guestWorks, Bool.random(using: &generator) {
      guestWorks = false
      if turns.endOutsideJob() { signals += 1 }
    }
    let movable = threads.indices.filter { threads[$0] != .sleeps || signals > 0 }
    guard let thread = movable.randomElement(using: &generator) else { return guestWorks }
    switch threads[thread] {
    case .asks: ask(thread)
    case .works where Bool.random(using: &generator):
      turns.deactivate(thread)
      wakeIfNeeded()
      threads[thread] = .worksBeside
    case .worksBeside where Bool.random(using: &generator):
      guard turns.tryToActivate(thread) else { break }
      begin(thread)
    case .works, .worksBeside, .watches: threads[thread] = .asks
    case .sleeps:
      signals -= 1
      threads[thread] = .asks
    }
    return true
  }

  private mutating func begin(_ thread: Int) {
    hasOverlapped = hasOverlapped || threads.contains(.works) || guestWorks
    threads[thread] = .works
  }

  private mutating func ask(_ thread: Int) {
    switch turns.nextStep(for: thread, at: .now) {
    case .perform(let job):
      job()
      begin(thread)
    case .poll: threads[thread] = .watches
    case .sleep: threads[thread] = .sleeps
    case .end: Issue.record("a thread ended before the model ended it")
    }
  }
}
