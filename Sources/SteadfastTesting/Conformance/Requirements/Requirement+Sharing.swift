import SteadfastQueue
import SystemFoundation

/// Requirements about several queues that share a store.
extension PersistenceConformance.Requirement {
  static let sharing: [Self] = [
    Self(
      "sharing.durations",
      "The lease duration and the poll interval are positive.",
      .shared,
      check: checkSharingDurations
    ),
    Self(
      "sharing.clocks",
      "A store decides by its own clock when a claim expires, not by the dates of requests.",
      .shared,
      check: checkClaimsExpireByOwnClock
    ),
    Self(
      "sharing.runs-out",
      "After a claim expires, the task is claimed again, at its previous position and with one more "
        + "interruption, and the old lease is stale.",
      .sharedWithClock,
      check: checkExpiredClaim
    ),
    Self(
      "sharing.extend",
      "Only a current claim can be extended.",
      .shared,
      check: checkWhichClaimsCanBeExtended
    ),
    Self(
      "sharing.extended",
      "An extended claim lasts for the given duration from the extension on, by the store's clock.",
      .sharedWithClock,
      check: checkDurationOfExtendedClaim
    ),
    Self(
      "sharing.holder",
      "A look-up shows who has claimed a task, when, and when the claim ends, by the store's clock.",
      .sharedWithClock,
      check: checkHolder
    ),
    Self(
      "sharing.clock-back",
      "When the store's clock goes back, existing claims last no longer than their durations.",
      .sharedWithOneClock,
      check: checkClaimsAfterClockGoesBack
    ),
    Self(
      "sharing.next-date",
      "A claim's next date is not later than the date on which the next existing claim expires.",
      .shared,
      check: checkNextDateBeforeClaimExpires
    ),
    Self(
      "sharing.two",
      "Two stores that are open at once have the same tasks, and a task that one has claimed is "
        + "not available to the other.",
      .shared,
      check: checkTwoOpenStores
    ),
    Self(
      "sharing.closed",
      "Closing or opening a store does not affect the claims of another open store.",
      .shared,
      check: checkClosingOtherStore
    ),
  ]

  private static func checkSharingDurations(in store: StoreProbe) async throws {
    let sharing = store.store.sharing ?? StoreSharing()
    try store.expect("whether leaseDuration is positive", sharing.leaseDuration > .zero, true)
    try store.expect("whether pollInterval is positive", sharing.pollInterval > .zero, true)
  }

  private static func checkClaimsExpireByOwnClock(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let lease = try await store.claimOne(at: 86_400, leaseTime: StoreProbe.leaseTime)
    for now in [0, 86_400 + StoreProbe.leaseTime, 172_800] as [Double] {
      try store.expect(try await store.claim(at: now), [])
    }
    try await store.apply(.extend(lease, for: .seconds(StoreProbe.leaseTime)))
    try store.expect(try await store.claim(at: 259_200), [])
    try await store.apply(.succeed(lease, at: .second(1), retains: false))
  }

  private static func checkClaimsAfterClockGoesBack(in store: StoreProbe) async throws {
    for extends in [false, true] {
      let fresh = try await store.openEmptyStore(suffix: "\(extends)")
      try await fresh.insert(.numbered(1))
      if !extends { try await fresh.advanceClock(bySeconds: 1e6) }
      let lease = try await fresh.claimOne(leaseTime: StoreProbe.leaseTime)
      if extends {
        try await fresh.advanceClock(bySeconds: 1e6)
        try await fresh.apply(.extend(lease, for: .seconds(StoreProbe.leaseTime)))
      }
      try await fresh.advanceClock(bySeconds: -1e6)
      try await fresh.apply(.rebase(.second(0)))
      try fresh.expect(try await fresh.claim(), [])
      try await fresh.advanceClock(bySeconds: StoreProbe.leaseTime + fresh.maxExpiryDelay + 1)
      try fresh.expect(try await fresh.claim(), [1])
    }
  }

  private static func checkHolder(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let holder = "höst 1 queue"
    func claim(of number: Int, lastsFor seconds: Double, by holder: String) async throws -> Date {
      let claim = try await store.task(number).claim.required()
      try store.expect("the holder", claim.holder, holder)
      let duration = try claim.endDate.required().timeIntervalSince(claim.date)
      // The store's clock advances a little by itself.
      let isSame = abs(duration - seconds) < StoreProbe.leaseTime / 4
      try store.expect("whether the claim lasts for \(seconds) s", isSame, true)
      return claim.date
    }
    let lease = try await store.claim(1, leaseTime: StoreProbe.leaseTime, by: holder).tasks.first
      .required().lease
    let date = try await claim(of: 1, lastsFor: StoreProbe.leaseTime, by: holder)
    let isFree = try await store.task(2).claim == nil
    try store.expect("whether a waiting task has no claim", isFree, true)
    try await store.advanceClock(bySeconds: StoreProbe.leaseTime / 2)
    try await store.apply(.extend(lease, for: .seconds(StoreProbe.leaseTime)))
    let same = try await claim(of: 1, lastsFor: StoreProbe.leaseTime * 1.5, by: holder)
    try store.expect("whether the date stays", same == date, true)
    try await store.apply(.release(lease))
    let isReleased = try await store.task(1).claim == nil
    try store.expect("whether a released task has no claim", isReleased, true)
    _ = try await store.claim(1, leaseTime: StoreProbe.leaseTime, by: "b")
    let next = try await claim(of: 1, lastsFor: StoreProbe.leaseTime, by: "b")
    let isLater = next.timeIntervalSince(date) > StoreProbe.leaseTime / 4
    try store.expect("whether the next claim is later", isLater, true)
  }

  private static func checkExpiredClaim(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let old = try await store.claim(1, leaseTime: StoreProbe.leaseTime).tasks.first.required().lease
    try await store.advanceClock(bySeconds: StoreProbe.leaseTime / 2)
    try store.expect(try await store.claim(1), [2])
    try store.expect(try await store.claim(), [])
    try await store.insert(.numbered(3))
    try await store.advanceClock(bySeconds: StoreProbe.leaseTime / 2 + store.maxExpiryDelay)
    let claim = try await store.claim()
    try store.expect(claim, [1, 3])
    let expected = TaskRecord.numbered(1).with { record in
      record.state = .running
      record.interruptionCount = 1
    }
    try store.expect(claim.tasks[0].record, is: expected)
    for change in changes(with: old) { try await store.apply(change, .stale) }
    try await store.apply(.extend(old, for: .seconds(500)), .stale)
    try await store.expect(1, is: expected)
    try await store.apply(
      .retry(claim.tasks[0].lease, availableDate: .second(70), retryCount: 1, failure: nil)
    )
    let count = try await store.task(1).interruptionCount
    try store.expect("interruptions after a retry", count, 0)
  }

  private static func checkWhichClaimsCanBeExtended(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1))
    let lease = try await store.claimOne(leaseTime: StoreProbe.leaseTime)
    let time = Duration.seconds(StoreProbe.leaseTime)
    try await store.apply(.extend(lease, for: time))
    try await store.apply(.extend(lease, for: time))
    try store.expect(try await store.claim(), [])
    try await store.apply(.succeed(lease, at: .second(121), retains: true))
    try await store.apply(.extend(lease, for: time), .stale)
    try await store.apply(.extend(Lease(id: .numbered(9), token: 1), for: time), .stale)
    try store.expect(try await store.claim(at: 1000), [])
    try await store.expectTasks([1], TaskFilter(states: [.succeeded]))
  }

  private static func checkDurationOfExtendedClaim(in store: StoreProbe) async throws {
    let time = StoreProbe.leaseTime
    try await store.insert(.numbered(1))
    let lease = try await store.claimOne(leaseTime: time)
    // This claim comes from another queue, whose clock is a day ahead.
    try store.expect(try await store.claim(at: 86_400), [])
    try await store.advanceClock(bySeconds: time / 2)
    try await store.apply(.extend(lease, for: .seconds(time)))
    try await store.advanceClock(bySeconds: time * 3 / 4)
    try store.expect(try await store.claim(at: 86_400), [])
    try await store.apply(.extend(lease, for: .seconds(time)))
    try await store.advanceClock(bySeconds: time * 3 / 4)
    try store.expect(try await store.claim(), [])
    try await store.advanceClock(bySeconds: time / 4 + store.maxExpiryDelay)
    try store.expect(try await store.claim(), [1])
  }

  private static func checkNextDateBeforeClaimExpires(in store: StoreProbe) async throws {
    let (now, time) = (86_400.0, StoreProbe.leaseTime)
    let end = now + time + store.maxExpiryDelay
    try await store.insert(.numbered(1), .numbered(2, at: end + 900))
    let lease = try await store.claimOne(at: now, leaseTime: time)
    try store.expectNextDate(try await store.claim(at: now), by: end, at: now)
    try await store.apply(.extend(lease, for: .seconds(2 * time)))
    try store.expectNextDate(try await store.claim(at: now), by: end + time, at: now)
    try await store.apply(.succeed(lease, at: .second(50), retains: false))
    try store.expectNextDate(try await store.claim(at: now), by: end + 900, at: now)
    try await store.apply(.cancel(.unclaimed(.numbered(2)), at: .second(50), retains: false))
    try store.expectNextDate(try await store.claim(at: now), by: nil, at: now)
  }

  private static func checkTwoOpenStores(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1, key: "k"), .numbered(2), .numbered(3))
    let mine = try await store.claim(1)
    try store.expect(mine, [1])
    let other = try await store.openSecondStore()
    let others = try await other.claim(1)
    try other.expect(others, [2])
    try await other.expect(1, is: .numbered(1, key: "k").with { $0.state = .running })
    let twin = TaskRecord.numbered(4, key: "k")
    try await other.apply(.insert(twin, onDuplicate: .join), .duplicate(of: .numbered(1)))
    try await other.apply(.cancel(.unclaimed(.numbered(1)), at: .second(1), retains: true), .stale)
    try await store.apply(.succeed(mine.tasks[0].lease, at: .second(1), retains: false))
    try await other.apply(.release(others.tasks[0].lease))
    try await other.insert(twin)
    try store.expect(try await store.claim(), [2, 3, 4])
    try other.expect(try await other.claim(), [])
    let leases = [mine, others].flatMap(\.tasks).map(\.lease.token)
    try store.expect("whether leases differ", Set(leases).count, 2)
  }

  private static func checkClosingOtherStore(in store: StoreProbe) async throws {
    try await store.insert(.numbered(1), .numbered(2))
    let lease = try await store.claim(1).tasks.first.required().lease
    let other = try await store.openSecondStore()
    try other.expect(try await other.claim(), [2])
    other.recordStep("close")
    try await other.store.close()
    let third = try await store.openSecondStore()
    try third.expect(try await third.claim(at: 10), [])
    try await store.apply(.succeed(lease, at: .second(1), retains: false))
    try await store.expectTasks([2], TaskFilter(states: [.running]))
  }
}
