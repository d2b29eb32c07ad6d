import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// What passes from one thread to another must not be lost on the way.
@Suite struct HandOverTests {
  private static let rounds = 20_000

  /// Two that wait for each other, each on a thread of its own, over and over.
  private func playPingPong(
    _ ping: @escaping @Sendable () async -> Void,
    _ pong: @escaping @Sendable () async -> Void
  ) async {
    await withTaskGroup { group in
      for play in [ping, pong] {
        group.addTask(executorPreference: ThreadForEachJob()) {
          for _ in 0..<Self.rounds { await play() }
        }
      }
    }
  }

  @Test(.timeLimit(.minutes(5))) func `a fire between looking and waiting wakes`() async {
    let (ball, answer) = (WakeUp(), WakeUp())
    await playPingPong {
      ball.fire()
      await answer.wait()
    } _: {
      await ball.wait()
      answer.fire()
    }
  }

  @Test(.timeLimit(.minutes(5))) func `an event just before its observer waits wakes it`() async {
    let (subscription, answer) = (EventSubscription(capacity: 4), WakeUp())
    await playPingPong {
      subscription.post(.cancelled(.numbered(1)))
      await answer.wait()
    } _: {
      let event = await subscription.next()
      #expect(event != nil)
      answer.fire()
    }
  }

  @Test func `an end that is told leaves a change of the task under way`() async {
    let changes = ChangesUnderWay()
    await changes.beginChanges(of: [.numbered(1)])
    changes.beginEnds(of: [.numbered(1)])
    changes.endsAreTold(of: [.numbered(1)])
    #expect(changes.count == 1)
    changes.changesAreTold(of: [.numbered(1)])
    #expect(changes.count == 0)
  }

  @Test func `turns at several keys are taken in the order of the keys`() async {
    let (turns, executor) = (KeyTurns(), ManualExecutor { 0 })
    let keys = Set((0..<26).map { "key \($0)" })
    await turns.begin(["key 0"])
    let waiting = Task(executorPreference: executor) { await turns.begin(keys) }
    executor.runTasks()
    // It waits for the first key, and has taken no turn at the others.
    #expect(turns.count == 1)
    turns.end(["key 0"])
    executor.runTasks()
    await waiting.value
    #expect(turns.count == 26)
    turns.end(keys)
    #expect(turns.count == 0)
  }
}
