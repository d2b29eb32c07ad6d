import Synchronization
import SteadfastTesting

@testable import SteadfastQueue

/// A store whose answers are held back, before or after the change, until the test lets go of them.
final class HeldStore: ForwardingStore {
  typealias Choice = @Sendable ([TaskChange]) -> Bool

  let appliesAtOnce: Bool
  let sharing: StoreSharing?
  let base: any Persistence
  private let clock: VirtualClock
  private let claimDelay: Duration
  private let before: Choice
  private let after: Choice
  private let held = Mutex<[CheckedContinuation<Void, Never>]>([])

  init(
    _ base: any Persistence = InMemoryStore(),
    _ clock: VirtualClock,
    appliesAtOnce: Bool = false,
    claimDelay: Duration = .zero,
    before: @escaping Choice = { _ in false },
    after: @escaping Choice = { _ in false }
  ) {
    self.base = base
    self.clock = clock
    self.appliesAtOnce = appliesAtOnce
    self.claimDelay = claimDelay
    self.before = before
    self.after = after
    sharing = base.sharing
  }

  /// Takes over all calls that are held.
  func takeHeld() -> [CheckedContinuation<Void, Never>] {
    held.withLock { held in
      defer { held = [] }
      return held
    }
  }

  func letGo() { for call in takeHeld() { call.resume() } }

  private func hold(_ isHeld: Bool) async {
    guard isHeld else { return }
    await withCheckedContinuation { call in held.withLock { $0.append(call) } }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    await hold(before(batch))
    let outcomes = try await base.apply(batch, durability: durability)
    await hold(after(batch))
    return outcomes
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await base.claim(request)
    // The claim is made, whoever is cancelled.
    if claimDelay > .zero { try? await clock.sleep(for: claimDelay) }
    return claim
  }
}

extension [TaskChange] {
  /// Whether one of the changes is of this kind.
  func contains(_ kind: String) -> Bool { contains { "\($0)".hasPrefix(kind) } }
}
