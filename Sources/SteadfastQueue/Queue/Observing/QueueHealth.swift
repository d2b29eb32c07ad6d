import Synchronization
public import SystemFoundation

/// How a queue is, as far as it knows without asking its store.
///
/// ``TaskQueue/health`` returns it. Use it for the probes of an orchestrator such as Kubernetes.
public struct QueueHealth: Sendable {
  /// What a queue does.
  @nonexhaustive
  public enum Phase: String, Sendable, Hashable, CaseIterable {
    /// It does not run: no run has begun yet, or the last one has ended.
    case idle
    /// It performs tasks, or waits for some.
    case running
    /// It runs, but it is paused.
    case paused
    /// It performs the last attempts of a run that is about to end.
    case ending
    /// It was shut down.
    case ended
  }

  /// What the queue does.
  public let phase: Phase
  /// The error with which the last run ended or failed to open the store; `nil` if there is none,
  /// or if a new run has begun since.
  public let failure: (any Error)?
  /// Since when calls have failed because the store is unavailable, and are retried; `nil` if there
  /// are none.
  public let storeAwaySince: Date?

  /// Whether the queue performs tasks: it runs, is not about to end, and does not wait for its
  /// store.
  ///
  /// A paused queue is ready.
  public var isReady: Bool {
    switch phase {
    case .running, .paused: storeAwaySince == nil
    case .idle, .ending, .ended: false
    }
  }

  /// Whether the process can keep running: the queue's last run has not failed.
  ///
  /// A queue that waits for its store is alive, because a new process would wait, too.
  public var isAlive: Bool { failure == nil }
}

extension QueueCore {
  var health: QueueHealth {
    let (phase, failure) = dispatch.machine.withLock { machine in
      (QueueHealth.Phase(machine), machine.lastFailure)
    }
    return QueueHealth(
      phase: phase,
      failure: failure,
      storeAwaySince: storage.retryingStore?.retryPolicy.waitingSince
    )
  }
}

extension QueueHealth.Phase {
  fileprivate init(_ machine: WorkMachine) {
    self =
      if machine.mode == nil {
        machine.isShutDown ? .ended : .idle
      } else if machine.isStopping || machine.isShutDown {
        .ending
      } else {
        machine.isPaused ? .paused : .running
      }
  }
}
