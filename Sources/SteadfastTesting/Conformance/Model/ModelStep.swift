import SteadfastQueue
import SteadfastRetry

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A random step in the check of a store against a reference.
///
/// Steps name tasks and claims by numbers, so that a step keeps a meaning when earlier steps are
/// left out.
enum ModelStep: Sendable {
  struct NewTask: Sendable {
    var number: Int
    var queue: String
    var name: String
    var priority: Int
    var delay: Double
    var key: String?
    var uniqueFor: Double?
    var maxDelay: Double?
    var expiresIn: Double?
    var order: String?
    var holds: Bool
    var conditions: Set<TaskCondition>
    var dependencies: Set<Int>
    var rule: DependencyRule
    var follower: Int?
    var policy: UniquePolicy
  }

  enum End: Sendable, CaseIterable {
    case succeed, retry, retryWithoutFailure, abandon, release, park
    case cancel, pause, restart, restartForgetting, reschedule
    case suspend, suspendEndlessly
  }

  enum Control: Sendable, CaseIterable {
    case cancel, pause, resume, restart, restartForgetting, reschedule, update, remove
  }

  /// One change.
  enum Change: Sendable {
    case insert(NewTask)
    /// One of the latest insertions is sent again.
    case insertAgain(back: Int)
    case end(claim: Int, End, retains: Bool, delay: Double, awaiting: [String])
    case remember(claim: Int, [String: [UInt8]])
    /// A value is completed if it is open, which it need not be.
    case complete(task: Int, String, [UInt8])
    case control(task: Int, Control, retains: Bool)
    /// A value is set if it is the present one, or one that it seldom is.
    case value(String, isPresent: Bool, to: [UInt8]?)
  }

  case change(Change)
  case batch([Change])
  case claim(
    limit: Int,
    queue: String,
    names: [String: Int],
    otherNames: Int,
    conditions: Set<TaskCondition>
  )
  case unpark(name: String, queue: String)
  case prune(TaskState, age: Double?, keepingLatest: Int?, queue: String)
  /// Only for a store whose queues have one clock.
  case rebase(back: Double)
  /// Only for a store that several queues share.
  case extend(claim: Int)
  case reopen
}

/// Draws random steps from a seed.
struct ModelDrawing {
  private var random: SplitMix64
  private var lastNumber = 0
  let names = ["A", "B", "C"]
  /// Most tasks are in one queue, so that much happens there.
  private let queues = ["", "", "", "other"]

  init(seed: UInt64) { random = Randomness.seeded(seed).makeGenerator() }

  private mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &random) }

  private mutating func draw<Choice>(_ choices: [Choice]) -> Choice {
    choices[below(choices.count)]
  }

  mutating func step() -> ModelStep {
    switch below(40) {
    case 0..<20: .change(change())
    case 20..<23: .batch((0...below(4)).map { _ in change() })
    case 23..<32: claim()
    case 32: .unpark(name: draw(names), queue: draw(queues))
    case 33, 34:
      .prune(
        draw([.succeeded, .abandoned, .cancelled]),
        age: draw([nil, 0, 10, 30]),
        keepingLatest: draw([nil, 0, 1, 3]),
        queue: draw(queues)
      )
    case 35: .rebase(back: Double(1 + below(40)))
    case 36, 37: .extend(claim: below(1000))
    default: .reopen
    }
  }

  private mutating func claim() -> ModelStep {
    var room: [String: Int] = [:]
    for name in names where below(3) > 0 { room[name] = draw([0, 1, 2, .max]) }
    return .claim(
      limit: below(5),
      queue: draw(queues),
      names: room,
      otherNames: draw([0, 0, 1, 3]),
      conditions: draw([[], ["a"], ["a", "b"], ["a", "b"]])
    )
  }

  private mutating func change() -> ModelStep.Change {
    switch below(12) {
    case 0..<4: return below(8) == 0 ? .insertAgain(back: below(4)) : .insert(newTask())
    case 4..<7:
      // One of the latest claims, because earlier ones are mostly stale.
      return .end(
        claim: -1 - below(6),
        draw(ModelStep.End.allCases + [.suspend, .suspendEndlessly]),
        retains: draw([true, false]),
        delay: Double(below(20)),
        awaiting: draw([[], [draw(Self.stepNames)], Self.stepNames])
      )
    case 7:
      let values = (0...below(2)).map { _ in
        (draw(Self.stepNames), draw([[], [], [UInt8(below(256))]] + Self.stepValues))
      }
      return .remember(claim: -1 - below(4), Dictionary(values) { first, _ in first })
    case 8:
      return .complete(task: recentTask(), draw(Self.stepNames), draw([[1], [2, 3]]))
    case 9 where below(2) == 0:
      return .value(
        draw(Self.valueNames),
        isPresent: below(4) > 0,
        to: draw([nil, [], [0], [0, 1], [255]])
      )
    default:
      return .control(
        task: recentTask(),
        draw(ModelStep.Control.allCases + [.cancel, .restart, .restart, .remove]),
        retains: draw([true, false])
      )
    }
  }

  /// Mostly one of the latest tasks, which others wait for or that wait for others.
  private mutating func recentTask() -> Int {
    below(3) > 0 ? max(1, lastNumber - below(8)) : below(lastNumber + 2)
  }

  static let valueNames = ["A", "value", "\u{e9}", "e\u{301}"]
  static let stepNames = ["step", "\u{e9}t", "e\u{301}t"]
  private static let stepValues: [[UInt8]] = [Array("text".utf8), [0, 255]]

  private mutating func newTask() -> ModelStep.NewTask {
    lastNumber += 1
    // Sometimes an ID that is taken.
    let number = below(20) == 0 ? below(lastNumber) + 1 : lastNumber
    let dependencies = drawDependencies(of: number)
    let follower = drawFollower(of: number)
    let policy = draw([UniquePolicy.keep, .replace, .reject, .join])
    let isPlain = dependencies.isEmpty && follower == nil
    return ModelStep.NewTask(
      number: number,
      queue: draw(queues),
      name: draw(names),
      priority: draw([-1, 0, 0, 1, .max]),
      delay: Double(below(25) - 10),
      key: below(3) == 0 ? "key \(below(3))" : nil,
      uniqueFor: below(4) == 0 ? Double(below(200)) : nil,
      maxDelay: below(4) == 0 ? Double(below(80)) : nil,
      expiresIn: below(3) == 0 ? Double(below(40)) : nil,
      order: below(3) == 0 ? "order \(below(2))" : nil,
      holds: below(3) == 0,
      conditions: draw([[], [], [], ["a"], ["a", "b"], ["c"]]),
      dependencies: dependencies,
      rule: below(3) == 0 ? .allEnded : .allSucceeded,
      follower: follower,
      // A task that waits replaces none.
      policy: policy == .replace && !isPlain ? .keep : policy
    )
  }

  /// Some of the latest tasks, which may have left.
  private mutating func drawDependencies(of number: Int) -> Set<Int> {
    guard below(2) == 0 else { return [] }
    let numbers = Set((0...below(2)).map { _ in lastNumber - 1 - below(6) })
    return numbers.filter { $0 > 0 && $0 != number }
  }

  /// One of the latest tasks, or the next one.
  private mutating func drawFollower(of number: Int) -> Int? {
    guard below(4) == 0 else { return nil }
    let follower = below(3) == 0 ? lastNumber + 1 : lastNumber - 1 - below(5)
    return follower > 0 && follower != number ? follower : nil
  }
}
