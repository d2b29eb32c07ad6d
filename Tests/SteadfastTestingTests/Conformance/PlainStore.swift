import Foundation
import SteadfastTesting
import Synchronization

/// A simple and correct store, any part of which a test can replace with a faulty one.
final class PlainStore: Persistence {
  /// How the store behaves: correctly, unless a test replaces a part.
  struct Behaviour: Sendable {
    var sharing: StoreSharing?
    /// Whether all queues that share the store also share its clock.
    var hasOneClock = false
    var checksForm = true
    /// Returns whether the store accepts a malformed change that fails the check with this error.
    var overlooks: @Sendable (TaskQueueError) -> Bool = { _ in false }
    var rewrite: @Sendable (TaskChange) -> TaskChange = { $0 }
    var apply: @Sendable ([TaskChange], inout ReferenceTable) -> [ChangeOutcome] = { $1.apply($0) }
    /// Returns whether a call throws a transient error after it has stored its batch.
    var losesAnswer: @Sendable ([TaskChange]) -> Bool = { _ in false }
    var request: @Sendable (ClaimRequest) throws -> ClaimRequest = { $0 }
    var goesBefore: @Sendable (ReferenceTable.Entry, ReferenceTable.Entry) -> Bool = {
      $0.rank < $1.rank
    }
    var nextDate: @Sendable (Date?, ClaimRequest, ReferenceTable) -> Date? = { date, _, _ in date }
    /// Maps claimed tasks to the tasks that a claim returns.
    var claimed: @Sendable ([ClaimedTask]) -> [ClaimedTask] = { $0 }
    /// Maps a stored record to the record that a look-up returns.
    var shown: @Sendable (TaskRecord) -> TaskRecord = { $0 }
    var matches: @Sendable (TaskRecord, TaskFilter) -> Bool = { $1.matches($0) }
    var page: @Sendable ([TaskRecord], TaskID?, Int) -> [TaskRecord] = { tasks, id, limit in
      Array(tasks.filter { task in id.map { task.id > $0 } ?? true }.prefix(limit))
    }
    /// The page of a look-up of the newest tasks; the tasks are in the order of their IDs.
    var newestPage: @Sendable ([TaskRecord], TaskID?, Int) -> [TaskRecord] = { tasks, id, limit in
      Array(tasks.reversed().filter { task in id.map { task.id < $0 } ?? true }.prefix(limit))
    }
    var count: @Sendable (Int) -> Int = { $0 }
    /// Counts all tasks.
    var census: @Sendable ([TaskRecord], Date) -> TaskCensus = { tasks, now in
      TaskCensus(date: now, rows: tasks.map { TaskCensus.Row(counting: $0, at: now) })
    }
    var contains: @Sendable (Bool) -> Bool = { $0 }
    /// Reads a value.
    var value: @Sendable (String, ReferenceTable) -> [UInt8]? = { $1.values[ExactText($0)] }
    /// Reads the values whose names begin with a prefix.
    var values: @Sendable (String, ReferenceTable) -> [(name: String, bytes: [UInt8])] = {
      $1.values(prefix: $0)
    }
    /// Reads a task's memory.
    var memory: @Sendable (TaskID, ReferenceTable) -> TaskMemory = { id, table in
      var memory = TaskMemory()
      for (name, value) in table.memory(of: id) { memory[name.text] = value }
      return memory
    }
    /// Runs when the first store at a place opens.
    var first: @Sendable (inout ReferenceTable) -> Void = { _ in }
    /// Runs when a store opens on the tasks of an earlier store.
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
    /// Whether a store that was never opened, or that was closed, can be destroyed.
    var destroysUnopened = true
    var destroysClosed = true
    /// What happens when a store is destroyed twice.
    var destroysAgain = DestroyingAgain.nothing
    /// The store's clock; if it is `nil`, the store's time moves only when a test advances it.
    var clock: (@Sendable () -> Date)?
    /// Whether leases expire by the dates of requests instead of the store's clock.
    var usesClockOfRequests = false
    /// Whether the store checks for expired leases only three times per lease, and computes the
    /// next date only if a claim is empty.
    var looksSeldom = false
    /// Whether an extension is counted from the date of the latest request.
    var extendsFromRequests = false
    /// The number of seconds by which the clock advances with each call.
    var secondsPerCall = 0.0
    /// Whether other calls can run between a call's read and its write.
    var racesInApply = false
    var racesInClaim = false
  }

  enum DestroyingAgain: Sendable { case nothing, error, erasing }

  /// What is stored at a place.
  struct Contents: Sendable {
    var table = ReferenceTable()
    var durable = ReferenceTable()
    var lastToken: UInt64 = 0
    var lastRequest = Date.distantPast
    /// The date at which the store last ended expired leases, by its own clock.
    var lastEnding = Date.distantPast
    var isNew = true
  }

  /// The contents of all places, like the files in a folder.
  final class Shelf: Sendable {
    fileprivate let places = Mutex<[String: Contents]>([:])
    /// The number of seconds by which calls have advanced all clocks.
    fileprivate let seconds = Mutex(0.0)

    /// The duration by which calls have advanced all clocks.
    var uptime: Duration { .seconds(seconds.withLock { $0 }) }

    /// Advances the clock of the stores at this place.
    func advanceClock(at place: String, by duration: Duration) {
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

  /// Advances the clock, and then runs `body` on the contents of the store's place.
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

  /// Lets other tasks run, as a slow device would.
  private func letOthersRun() async { await withDiscardingTaskGroup { $0.addTask {} } }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    if behaviour.checksForm { for change in batch { try checkForm(of: change) } }
    let changes = batch.map(behaviour.rewrite)
    var before: Contents?
    if behaviour.racesInApply {
      before = try update { $0 }
      await letOthersRun()
    }
    let outcomes = try update { contents in
      if let before { contents = before }
      let clock = contents.table.clock
      if behaviour.extendsFromRequests { contents.table.clock = contents.lastRequest }
      let outcomes = behaviour.apply(changes, &contents.table)
      contents.table.clock = clock
      if durability == .durable { contents.durable = contents.table }
      return outcomes
    }
    if behaviour.losesAnswer(batch) { throw TransientFault() }
    return outcomes
  }

  private func checkForm(of change: TaskChange) throws {
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
      let endsClaims = contents.shouldEndExpiredLeases(
        sharing: sharing,
        seldom: behaviour.looksSeldom
      )
      let available = contents.table.claimable(unlimited, endsClaims: endsClaims)
        .sorted(by: behaviour.goesBefore)
      let tasks = available.prefix(request.limit).map { entry in
        contents.lastToken += 1
        let lease = Lease(id: entry.record.id, token: contents.lastToken)
        if behaviour.leases {
          contents.table.lease(lease, for: request.leaseDuration, by: request.holder)
        }
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

  private func records(matching filter: TaskFilter) throws -> [TaskRecord] {
    try update { $0.table.records }.map(behaviour.shown).filter { behaviour.matches($0, filter) }
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    newestFirst
      ? behaviour.newestPage(try records(matching: filter), id, limit)
      : behaviour.page(try records(matching: filter), id, limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    behaviour.count(try records(matching: filter).count)
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    behaviour.contains(try !records(matching: filter).isEmpty)
  }

  func census(at now: Date) async throws -> TaskCensus {
    behaviour.census(try records(matching: TaskFilter(queue: nil)), now)
  }

  func value(named name: String) async throws -> [UInt8]? {
    try update { behaviour.value(name, $0.table) }
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try update { behaviour.values(prefix, $0.table) }
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
  /// Returns whether a claim ends expired leases now, and records the date if so.
  ///
  /// If the store rarely checks for expired leases, only three claims per lease duration end them.
  fileprivate mutating func shouldEndExpiredLeases(sharing: StoreSharing?, seldom: Bool) -> Bool {
    guard seldom, let sharing else { return true }
    let pause = sharing.leaseDuration / .seconds(3)
    guard table.clock >= lastEnding + pause else { return false }
    lastEnding = table.clock
    return true
  }
}
