import Foundation
import SteadfastTesting
import Synchronization

/// A store as plain as can be, in which each part can be broken: what the kit must see.
final class PlainStore: Persistence {
  /// How the store behaves: soundly, unless a part is replaced.
  struct Behaviour: Sendable {
    var sharing: StoreSharing?
    /// Whether all queues have the store's clock, if several share it.
    var hasOneClock = false
    var checksForm = true
    /// Which errors of changes that make no sense are overlooked.
    var overlooks: @Sendable (TaskQueueError) -> Bool = { _ in false }
    var rewrite: @Sendable (TaskChange) -> TaskChange = { $0 }
    var apply: @Sendable ([TaskChange], inout ReferenceTable) -> [ChangeOutcome] = { $1.apply($0) }
    var request: @Sendable (ClaimRequest) throws -> ClaimRequest = { $0 }
    var goesBefore: @Sendable (ReferenceTable.Entry, ReferenceTable.Entry) -> Bool = {
      $0.rank < $1.rank
    }
    var nextDate: @Sendable (Date?, ClaimRequest, ReferenceTable) -> Date? = { date, _, _ in date }
    /// What a claim returns of what it hands out.
    var claimed: @Sendable ([ClaimedTask]) -> [ClaimedTask] = { $0 }
    /// What a look-up returns of a record.
    var shown: @Sendable (TaskRecord) -> TaskRecord = { $0 }
    var matches: @Sendable (TaskRecord, TaskFilter) -> Bool = { $1.matches($0) }
    var page: @Sendable ([TaskRecord], TaskID?, Int) -> [TaskRecord] = { tasks, id, limit in
      Array(tasks.filter { task in id.map { task.id > $0 } ?? true }.prefix(limit))
    }
    var count: @Sendable (Int) -> Int = { $0 }
    var contains: @Sendable (Bool) -> Bool = { $0 }
    /// Which value a store reads.
    var value: @Sendable (String, ReferenceTable) -> [UInt8]? = { $1.values[ExactText($0)] }
    /// What a store reads of a task's memory.
    var memory: @Sendable (TaskID, ReferenceTable) -> TaskMemory = { id, table in
      var memory = TaskMemory()
      for (name, value) in table.memory(of: id) { memory[name.text] = value }
      return memory
    }
    /// What the first store at a place begins with.
    var first: @Sendable (inout ReferenceTable) -> Void = { _ in }
    /// What a store does to the tasks of an earlier one when it is opened.
    var reopen: @Sendable (inout ReferenceTable) -> Void = { $0.interrupt() }
    var opensAnew = false
    var keepsRelaxed = true
    var keepsTokens = true
    var heedsCancellation = false
    var leases = true
    var closes = true
    var destroys = true
    var erases = true
    var erasesValues = true
    /// Whether a store that was not opened, or was closed, can be destroyed.
    var destroysUnopened = true
    var destroysClosed = true
    /// What destroying a store again does.
    var destroysAgain = DestroyingAgain.nothing
    /// The store's clock; if there is none, it stands still until it is moved.
    var clock: (@Sendable () -> Date)?
    /// Which clock decides that a claim has run out.
    var usesClockOfRequests = false
    /// Whether it ends claims three times in a lease, and looks for dates only if it finds nothing.
    var looksSeldom = false
    /// Whether an extension begins at the date of the latest request.
    var extendsFromRequests = false
    /// By how many seconds its clock goes on with each call.
    var secondsPerCall = 0.0
    /// Whether other calls come between what a call reads and what it writes.
    var racesInApply = false
    var racesInClaim = false
  }

  enum DestroyingAgain: Sendable { case nothing, error, erasing }

  /// What is kept at a place.
  struct Contents: Sendable {
    var table = ReferenceTable()
    var durable = ReferenceTable()
    var lastToken: UInt64 = 0
    var lastRequest = Date.distantPast
    /// When claims were last ended, by the store's clock.
    var lastEnding = Date.distantPast
    var isNew = true
  }

  /// The places where stores are.
  final class Shelf: Sendable {
    fileprivate let places = Mutex<[String: Contents]>([:])
    /// By how many seconds all clocks have gone on by themselves.
    fileprivate let seconds = Mutex(0.0)

    /// By how much all clocks have gone on by themselves.
    var uptime: Duration { .seconds(seconds.withLock { $0 }) }

    /// Moves the clock of the stores at a place.
    func advanceClock(_ place: String, _ duration: Duration) {
      places.withLock { $0[place]?.table.clock += duration / .seconds(1) }
    }
  }

  private let shelf: Shelf
  private let place: String
  private let behaviour: Behaviour
  private let state = Mutex((isOpen: false, isClosed: false, isDestroyed: false))

  init(_ shelf: Shelf, _ place: String, _ behaviour: Behaviour) {
    self.shelf = shelf
    self.place = place
    self.behaviour = behaviour
  }

  var sharing: StoreSharing? { behaviour.sharing }
  var hasOneClock: Bool { sharing == nil || behaviour.hasOneClock }

  func open() async throws {
    let isOpen = state.withLock { state in
      defer { state.isOpen = true }
      return state.isOpen
    }
    guard !isOpen || behaviour.opensAnew else { return }
    try update { contents in
      if contents.isNew { behaviour.first(&contents.table) }
      if !behaviour.keepsRelaxed { contents.table = contents.durable }
      if !behaviour.keepsTokens { contents.lastToken = 0 }
      if sharing == nil || behaviour.opensAnew { behaviour.reopen(&contents.table) }
      contents.isNew = false
    }
  }

  private func update<Result: Sendable>(
    _ body: (inout Contents) throws -> Result
  ) throws -> Result {
    if state.withLock({ $0.isClosed }) { throw PlainStoreError.closed }
    if behaviour.heedsCancellation { try Task.checkCancellation() }
    return try shelf.places.withLock { places in
      if let clock = behaviour.clock { places[place, default: Contents()].table.clock = clock() }
      places[place]?.table.clock += behaviour.secondsPerCall
      shelf.seconds.withLock { $0 += behaviour.secondsPerCall }
      return try body(&places[place, default: Contents()])
    }
  }

  /// Lets other tasks run, as a device would that answers late.
  private func letOthersRun() async { await withDiscardingTaskGroup { $0.addTask {} } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    if behaviour.checksForm { for change in batch { try check(change) } }
    let changes = batch.map(behaviour.rewrite)
    var before: Contents?
    if behaviour.racesInApply {
      before = try update { $0 }
      await letOthersRun()
    }
    return try update { contents in
      if let before { contents = before }
      let clock = contents.table.clock
      if behaviour.extendsFromRequests { contents.table.clock = contents.lastRequest }
      let outcomes = behaviour.apply(changes, &contents.table)
      contents.table.clock = clock
      if durability == .durable { contents.durable = contents.table }
      return outcomes
    }
  }

  private func check(_ change: TaskChange) throws {
    do {
      try change.checkForm()
    } catch {
      if !behaviour.overlooks(error) { throw error }
    }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let request = try behaviour.request(request)
    var before: Contents?
    if behaviour.racesInClaim {
      before = try update { $0 }
      await letOthersRun()
    }
    return try update { contents in
      if let before { contents.table = before.table }
      contents.lastRequest = request.now
      if behaviour.usesClockOfRequests { contents.table.clock = request.now }
      var unlimited = request
      unlimited.limit = .max
      let endsClaims = contents.endsClaims(sharing, seldom: behaviour.looksSeldom)
      let available = contents.table.claimable(unlimited, endsClaims: endsClaims)
        .sorted(by: behaviour.goesBefore)
      let tasks = available.prefix(request.limit).map { entry in
        contents.lastToken += 1
        let lease = Lease(id: entry.record.id, token: contents.lastToken)
        if behaviour.leases { contents.table.lease(lease, for: request.leaseDuration) }
        var record = entry.record
        record.state = .running
        return ClaimedTask(record: behaviour.shown(record), lease: lease)
      }
      let waiting = contents.table.waiting.map(\.record.availableDate)
      let clock = contents.table.clock
      let ends = contents.table.entries.compactMap(\.leaseEnd).map {
        request.now + $0.timeIntervalSince(clock)
      }
      let first = (waiting.filter { $0 > request.now } + ends).min()
      let isSpared = behaviour.looksSeldom && !tasks.isEmpty
      let next = isSpared || available.count > tasks.count ? request.now : first
      return Claim(
        tasks: behaviour.claimed(tasks),
        nextDate: behaviour.nextDate(next, request, contents.table)
      )
    }
  }

  private func found(_ filter: TaskFilter) throws -> [TaskRecord] {
    try update { $0.table.records }.map(behaviour.shown).filter { behaviour.matches($0, filter) }
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    behaviour.page(try found(filter), id, limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    behaviour.count(try found(filter).count)
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    behaviour.contains(try !found(filter).isEmpty)
  }

  func value(named name: String) async throws -> [UInt8]? {
    try update { behaviour.value(name, $0.table) }
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    try update { behaviour.memory(id, $0.table) }
  }

  func close() async throws {
    if behaviour.closes { state.withLock { $0.isClosed = true } }
  }

  func destroy() async throws {
    let before = state.withLock { state in
      defer {
        state.isDestroyed = true
        if behaviour.destroys { state.isClosed = true }
      }
      return state
    }
    switch behaviour.destroysAgain {
    case .nothing where before.isDestroyed: return
    case .error where before.isDestroyed: throw PlainStoreError.closed
    case .nothing, .error, .erasing: break
    }
    guard behaviour.destroysUnopened || before.isOpen,
      behaviour.destroysClosed || !before.isClosed
    else { return }
    shelf.places.withLock { places in
      let values = places[place]?.table.values ?? [:]
      if behaviour.erases { places[place] = nil }
      if !behaviour.erasesValues { places[place, default: Contents()].table.values = values }
    }
  }
}

enum PlainStoreError: Error { case closed, refused }

extension PlainStore.Contents {
  /// Returns whether a claim ends the claims that have run out.
  fileprivate mutating func endsClaims(_ sharing: StoreSharing?, seldom: Bool) -> Bool {
    guard seldom, let sharing else { return true }
    let pause = sharing.leaseDuration / .seconds(3)
    guard table.clock >= lastEnding + pause else { return false }
    lastEnding = table.clock
    return true
  }
}
