import SystemFoundation

/// The rate limits of a queue, with a cache of the stored starts that count for them.
///
/// This type decides which of the claimed tasks may begin, and which values must be stored before
/// they begin. If another process has changed the stored values, the new values can't be stored,
/// and the decision is repeated with the current values.
struct RateLimits: Sendable {
  /// A value of the store, as it was when this process last read or wrote it.
  private struct Known: Sendable {
    var bytes: [UInt8]?
    var histories: StartHistories
  }

  /// The prefix of the names of all values in which starts are stored.
  static let valueName = "steadfast.limit"

  /// Returns the name of the value with the starts of tasks with these names; `nil` means all
  /// tasks.
  static func valueName(_ prefix: String = valueName, for names: [String]?) -> String {
    prefix + (names?.first.map { "/\($0)" } ?? "")
  }

  /// How far ahead of this process's clock a stored start may be, in microseconds.
  ///
  /// Processes with different clocks may differ by five minutes. If all processes have one clock, a
  /// start that is more than a second ahead shows that the clock was set back.
  static func tolerance(hasOneClock: Bool) -> Int64 {
    hasOneClock ? 1_000_000 : 300_000_000
  }

  let scopes: [Scope]
  /// How far the clocks of processes on one store may be apart, in microseconds.
  private let tolerance: Int64
  /// The last date at which the clock was set back, or may have been, in microseconds since 1970.
  private var lastRebase: Int64?
  private let maxValueSize: Int
  private var known: [String: Known] = [:]
  /// For each key without a free start, the tasks that were postponed until the key's next free
  /// start.
  private(set) var postponedUntilFree: [HistoryID: PostponedTasks] = [:]

  init(
    _ limits: [RateLimit],
    tolerance: Int64,
    maxValueSize: Int = TaskQueueError.maxValueSize
  ) {
    var scopes: [Scope] = []
    for limit in limits {
      let window = RateWindow(limit.count, per: limit.interval)
      let name = limit.names?[0]
      // Limits with the same first task name share a history, because the name of the stored value
      // contains only the first task name.
      if limit.key == nil,
        let index = scopes.firstIndex(where: { $0.names?[0] == name && $0.key == nil })
      {
        scopes[index].add(limit, window: window)
        continue
      }
      // If several limits for the same tasks have keys, each limit has its own histories.
      let number = scopes.count { $0.names?[0] == name && $0.key != nil }
      scopes.append(
        Scope(
          names: limit.names,
          windows: [window],
          key: limit.key,
          prefix: limit.key == nil ? Self.valueName : "\(Self.valueName).\(number)",
          description: "\(limit)"
        )
      )
    }
    self.scopes = scopes
    self.tolerance = tolerance
    self.maxValueSize = maxValueSize
  }

  // MARK: The store's values

  /// The names of the values that must be read before tasks are claimed.
  var missingValues: [String] {
    scopes.filter { $0.key == nil && known[$0.valueName] == nil }.map(\.valueName)
  }

  /// Caches a value that was read from the store.
  ///
  /// If the value is malformed, the limit counts as just used up: it is respected, and tasks begin
  /// again when its interval has passed.
  ///
  /// - Returns: Whether the stored value must be replaced, because it is malformed or has dates in
  ///   the future. If it was not replaced, each process would count the interval from its own
  ///   start, and a process that lives for less than the interval would begin no task.
  mutating func cacheValue(named name: String, bytes: [UInt8]?, at now: Int64) -> Bool {
    let found = StartHistories(bytes)
    var histories = found ?? usedUpHistories(ofValue: name, at: now)
    let date = lastRebase.map { min($0, now) } ?? now
    histories.changeAll { $0.rebase(to: date, at: now, tolerance: tolerance) }
    known[name] = Known(bytes: bytes, histories: histories)
    return histories != found
  }

  /// Caches a malformed value, and returns the bytes that replace it in the store.
  mutating func mendValue(named name: String, bytes: [UInt8]?, at now: Int64) -> [UInt8]? {
    _ = cacheValue(named: name, bytes: bytes, at: now)
    let mended = known[name]?.histories.bytes
    known[name]?.bytes = mended
    return mended
  }

  /// Returns the histories of a limit that has just been used up.
  func usedUpHistories(ofValue name: String, at now: Int64) -> StartHistories {
    var histories = StartHistories()
    // If the limit has keys, it is unknown which keys had starts, so none counts as used up.
    guard let scope = scopes.first(where: { $0.key == nil && $0.valueName == name }) else {
      return histories
    }
    let count = scope.windows.map(\.count).max() ?? 0
    histories[StartHistories.onlyKey] =
      StartHistory(starts: Array(repeating: now, count: count))
    return histories
  }

  /// Removes values from the cache, because they are outdated.
  mutating func forgetValues(named names: some Sequence<String>) {
    for name in names { known[name] = nil }
  }

  /// Moves all dates that are later than `now` to `now`, because the clock was set back.
  ///
  /// If all processes share the clock (`hasOneClock`), any later date in a value that is read
  /// afterwards was stored before the clock was set back.
  mutating func rebase(to now: Int64, hasOneClock: Bool) {
    for name in known.keys {
      known[name]?.histories.changeAll { $0.rebase(to: now, at: now, tolerance: tolerance) }
    }
    postponedUntilFree = [:]
    if hasOneClock { lastRebase = now }
  }

  private func limiter(for id: HistoryID) -> RateLimiter {
    RateLimiter(
      windows: scopes[id.scope].windows,
      history: known[id.valueName]?.histories[id.key] ?? StartHistory()
    )
  }

  // MARK: Before a claim

  /// A limit that allows no start before a date, in microseconds since 1970.
  struct UsedUp: Sendable, Hashable {
    let scope: Int
    let until: Int64
  }

  /// The limits without keys that are used up.
  func usedUpLimits(at now: Int64) -> [UsedUp] {
    scopes.indices.compactMap { index in
      guard scopes[index].key == nil else { return nil }
      let limiter = limiter(for: onlyHistoryID(of: index))
      return limiter.remainingStarts(at: now) > 0
        ? nil : UsedUp(scope: index, until: limiter.nextStart(from: now))
    }
  }

  /// Returns a copy of a request, for at most as many tasks as the limits without keys allow to
  /// begin now.
  func requestWithinLimits(_ request: ClaimRequest, at now: Int64) -> ClaimRequest {
    var request = request
    for index in scopes.indices where scopes[index].key == nil {
      let room = limiter(for: onlyHistoryID(of: index)).remainingStarts(at: now)
      guard let names = scopes[index].names else {
        request.limit = min(request.limit, room)
        continue
      }
      // A request can't list two names that are equal in Swift but have different bytes.
      for name in names where request.names[exactly: name] != nil || request.names[name] == nil {
        request.names[name] = min(request.room(for: name), room)
      }
    }
    return request
  }

  private func onlyHistoryID(of scope: Int) -> HistoryID {
    HistoryID(scope: scope, valueName: scopes[scope].valueName, key: StartHistories.onlyKey)
  }

  // MARK: After a claim

  /// Which of the claimed tasks may start now; a task is given by its index in the claim.
  struct Admission: Sendable {
    /// The tasks that begin.
    var admitted: [Int] = []
    /// The tasks that return to their previous positions among the ready tasks.
    var released: [Int] = []
    /// The tasks that are postponed until a date, because their key has no free start before that
    /// date.
    var postponed: [(index: Int, until: Int64)] = []
    /// The values to store before the tasks begin.
    var writes: [Write] = []
    fileprivate var postponedUntilFree: [HistoryID: PostponedTasks] = [:]
    fileprivate var histories: [String: StartHistories] = [:]
  }

  struct Write: Sendable {
    let valueName: String
    let old: [UInt8]?
    let new: [UInt8]?
  }

  enum AdmissionResult {
    /// There is no decision yet: first, these values must be read and cached.
    case missing(Set<String>)
    case decided(Admission)
  }

  /// Returns where the starts of a task are counted: one history for each limit that applies to it.
  func historyIDs(of record: TaskRecord) -> [HistoryID] {
    scopes.indices.compactMap { index in
      let scope = scopes[index]
      guard scope.concerns(taskNamed: record.name) else { return nil }
      guard let key = scope.key else { return onlyHistoryID(of: index) }
      // A task whose payload can't be decoded has no key. The task will be parked anyway.
      guard let text = key(record) else { return nil }
      let number = Self.storedNumber(ofKey: text)
      return HistoryID(scope: index, valueName: scope.valueName(ofKey: number), key: number)
    }
  }

  /// Decides which of the claimed tasks may begin now, in the order of the claim.
  func admit(_ records: [TaskRecord], at now: Int64) -> AdmissionResult {
    let ids = records.map(historyIDs)
    let missing = Set(ids.joined().lazy.map(\.valueName)).filter { known[$0] == nil }
    guard missing.isEmpty else { return .missing(missing) }
    var admission = Admission()
    admission.postponedUntilFree = postponedUntilFree.filter { $0.value.date > now }
    for (index, ids) in ids.enumerated() {
      let denying = ids.filter { !allowsStart($0, in: admission, at: now) }
      if denying.isEmpty {
        for id in ids { recordStart(for: id, in: &admission, at: now) }
        admission.admitted.append(index)
        continue
      }
      let dates = denying.filter { scopes[$0.scope].key != nil }.map {
        dateOfNextTry(of: records[index], for: $0, in: &admission, now: now)
      }
      admission.deny(index, until: dates.max())
    }
    admission.writes = admission.histories.sorted { $0.key < $1.key }.map { name, histories in
      Write(valueName: name, old: known[name]?.bytes, new: histories.bytes)
    }
    return .decided(admission)
  }

  private func limiter(for id: HistoryID, in admission: Admission) -> RateLimiter {
    var limiter = limiter(for: id)
    if let changed = admission.histories[id.valueName] { limiter.history = changed[id.key] }
    return limiter
  }

  private func allowsStart(_ id: HistoryID, in admission: Admission, at now: Int64) -> Bool {
    guard limiter(for: id, in: admission).remainingStarts(at: now) > 0 else { return false }
    let histories = histories(for: id, in: admission)
    // A value with the starts of very many keys is full. Tasks with further keys then wait.
    return histories.maxByteCount + 64 <= maxValueSize
      || histories.histories[id.key] != nil && histories.maxByteCount + 16 <= maxValueSize
      || trimmedHistories(histories, for: id, at: now).maxByteCount + 64 <= maxValueSize
  }

  private func histories(for id: HistoryID, in admission: Admission) -> StartHistories {
    admission.histories[id.valueName] ?? known[id.valueName]?.histories ?? StartHistories()
  }

  private func trimmedHistories(
    _ histories: StartHistories,
    for id: HistoryID,
    at now: Int64
  ) -> StartHistories {
    var histories = histories
    histories.changeAll { $0.trim(to: scopes[id.scope].windows, at: now) }
    return histories
  }

  private func recordStart(for id: HistoryID, in admission: inout Admission, at now: Int64) {
    var histories = trimmedHistories(histories(for: id, in: admission), for: id, at: now)
    histories[id.key].addStart(at: now)
    admission.histories[id.valueName] = histories
  }

  /// Returns the date at which a task whose key has no free start tries again.
  ///
  /// The task tries at the key's next free start, together with the other tasks with the key, so
  /// that the task that comes first by then gets the start. A task that has tried before, and that
  /// comes after many other tasks, tries when these may all have begun. Because some of these may
  /// be cancelled, the task tries at least once in ``PostponedTasks/mostStarts`` starts.
  private func dateOfNextTry(
    of record: TaskRecord,
    for id: HistoryID,
    in admission: inout Admission,
    now: Int64
  ) -> Int64 {
    let limiter = limiter(for: id, in: admission)
    let next = limiter.nextStart(from: now)
    // If the value is full, the task tries again after the limit's interval.
    guard next > now else { return now + (limiter.windows.map(\.interval).max() ?? 0) }
    var tasks = admission.postponedUntilFree[id] ?? PostponedTasks(date: next)
    if tasks.date != next { tasks = PostponedTasks(date: next) }
    let aheadCount = tasks.addTask(withPriority: record.priority)
    admission.postponedUntilFree[id] = tasks
    guard aheadCount >= PostponedTasks.nearCount, record.availableDate > record.createdDate else {
      return next
    }
    // The added microsecond puts the task behind the tasks that try at each free start.
    return next + limiter.duration(ofStarts: min(aheadCount, PostponedTasks.mostStarts)) + 1
  }

  /// Updates the cached values after the values of a decision were stored.
  ///
  /// The admitted tasks begin now. Storing the values may have taken long, so this process counts
  /// the starts from `now`, not from the date of the decision.
  mutating func recordWrites(of admission: Admission, decidedAt date: Int64, at now: Int64) {
    postponedUntilFree = admission.postponedUntilFree
    for write in admission.writes {
      guard var histories = admission.histories[write.valueName] else { continue }
      histories.changeAll { $0.delayStarts(from: date, to: now) }
      known[write.valueName] = Known(bytes: write.new, histories: histories)
    }
  }
}

extension RateLimits.Admission {
  /// Records that a task may not begin.
  mutating func deny(_ index: Int, until date: Int64?) {
    if let date { postponed.append((index, date)) } else { released.append(index) }
  }
}

/// Pauses of limits.
extension RateLimits {
  /// Returns the histories to pause when a task reports that it has reached a limit of a service.
  ///
  /// These are the histories of the task's key. If there are none, they are the histories of its
  /// name or, if there are none either, those of all tasks.
  func historiesToPause(for record: TaskRecord) -> [HistoryID] {
    let ids = historyIDs(of: record)
    let keyed = ids.filter { scopes[$0.scope].key != nil }
    let named = ids.filter { scopes[$0.scope].names != nil }
    return keyed.isEmpty ? named.isEmpty ? ids : named : keyed
  }

  /// Returns the new bytes of a stored value after one of its histories was paused.
  func valueAfterPausing(
    _ id: HistoryID,
    in bytes: [UInt8]?,
    from now: Int64,
    until end: Int64
  ) -> [UInt8]? {
    var histories = StartHistories(bytes) ?? usedUpHistories(ofValue: id.valueName, at: now)
    histories[id.key].pause(from: now, until: end)
    return histories.bytes
  }
}

extension RateLimits {
  /// Limits for the same tasks, which share a history.
  struct Scope: Sendable {
    /// The names of the tasks; `nil` for all tasks of the queue.
    var names: [String]?
    var windows: [RateWindow]
    let key: (@Sendable (TaskRecord) -> String?)?
    /// The prefix of the names of the values that store the histories.
    let prefix: String
    var description: String

    /// The name of the value with the history of a limit without keys.
    var valueName: String { RateLimits.valueName(prefix, for: names) }

    /// The name of the value with the history of a key.
    func valueName(ofKey number: UInt64) -> String {
      RateLimits.valueName("\(prefix).\(number % RateLimits.partCount)", for: names)
    }

    /// Adds a limit with the same first name.
    ///
    /// A history does not record the names of the tasks that have started. So each limit of the
    /// scope counts the tasks with any of the scope's names: it may allow too few starts, never too
    /// many.
    mutating func add(_ limit: RateLimit, window: RateWindow) {
      windows.append(window)
      description += ", \(limit)"
      for name in limit.names ?? [] where !concerns(taskNamed: name) { names?.append(name) }
    }

    func concerns(taskNamed name: String) -> Bool { names?.contains { $0.isExactly(name) } ?? true }
  }

  /// Identifies a history: the stored value that contains it, and its key in the value.
  struct HistoryID: Sendable, Hashable {
    let scope: Int
    let valueName: String
    let key: UInt64
  }

  /// The number of stored values across which the keys of a limit are spread.
  private static let partCount: UInt64 = 256

  /// Returns the number that represents a key in a store.
  ///
  /// Two keys with the same number would count as one key. The probability that any two of a
  /// million keys have the same number is 3 in 100 million.
  static func storedNumber(ofKey key: String) -> UInt64 { key.utf8.stableHash }

  /// The number of tasks with one key, by priority, that were postponed until the key's next free
  /// start.
  struct PostponedTasks: Sendable, Hashable {
    /// How many of the postponed tasks try again at each free start.
    static let nearCount = 16
    /// The number of free starts within which each of the other postponed tasks tries at least
    /// once.
    static let mostStarts = 32

    /// The date of the key's next free start.
    let date: Int64
    private var counts: [TaskQueue.Priority: Int] = [:]

    init(date: Int64) { self.date = date }

    /// Adds a task, and returns how many tasks are ahead of it.
    mutating func addTask(withPriority priority: TaskQueue.Priority) -> Int {
      let ahead = counts.reduce(0) { $1.key >= priority ? $0 + $1.value : $0 }
      counts[priority, default: 0] += 1
      return ahead
    }
  }
}

/// A maximum number of starts within an interval.
struct RateWindow: Sendable, Hashable {
  /// The maximum number of starts whose dates are stored.
  static let maxCount = 1_024
  /// The shortest interval, in microseconds.
  static let shortestInterval: Int64 = 1_000

  /// The maximum number of starts, from 1 to 1,024.
  let count: Int
  /// The length of the interval, in microseconds.
  let interval: Int64

  /// Makes a window of `count` starts per interval.
  ///
  /// For more than 1,024 starts, the interval and the count are divided by the same number. That
  /// many of the shorter intervals make up the whole interval, so it has no more than `count`
  /// starts.
  init(_ count: Int, per interval: Duration) {
    let count = max(count, 1)
    let parts = (count - 1) / Self.maxCount + 1
    let microseconds = min(max(interval, .zero), RateLimit.longestInterval).microseconds
    self.count = count / parts
    // The interval is rounded up: if it is too long, it allows too few starts, never too many.
    self.interval = (microseconds + Int64(parts) - 1) / Int64(parts)
  }
}

/// The starts of attempts that share a limit, and the limit's pause, in microseconds since 1970.
struct StartHistory: Sendable, Hashable {
  struct Pause: Sendable, Hashable {
    var begin: Int64
    var end: Int64
  }

  /// The dates of the starts, in order; simultaneous starts are each listed.
  private(set) var starts: [Int64] = []
  private(set) var pause: Pause?

  init(starts: [Int64] = [], pause: Pause? = nil) {
    self.starts = starts
    self.pause = pause
  }

  var isEmpty: Bool { starts.isEmpty && pause == nil }

  /// Records that an attempt begins.
  ///
  /// If the last start is later than `now`, because another process's clock is ahead, the attempt
  /// counts from the date of that start.
  mutating func addStart(at now: Int64) { starts.append(max(now, starts.last ?? now)) }

  /// Moves the starts at or after `date` to `now`, because these attempts really begin at `now`.
  mutating func delayStarts(from date: Int64, to now: Int64) {
    guard now > date, let last = starts.last, last >= date else { return }
    starts = starts.map { $0 >= date ? max($0, now) : $0 }
  }

  /// Prevents starts until `end`, or until the end of the current pause if that is later.
  mutating func pause(from now: Int64, until end: Int64) {
    guard end > max(now, pause?.end ?? now) else { return }
    pause = Pause(begin: now, end: end)
  }

  /// Removes the starts that no longer count at `now`, and the pause if it has ended.
  mutating func trim(to windows: [RateWindow], at now: Int64) {
    if let pause, pause.end <= now { self.pause = nil }
    let (count, interval) = (
      windows.map(\.count).max() ?? 0, windows.map(\.interval).max() ?? 0
    )
    let extra = max(0, starts.count - count)
    let first = starts[extra...].firstIndex { $0 > now - interval } ?? starts.endIndex
    if first > 0 { starts.removeFirst(first) }
  }

  /// Moves dates that are later than `now` to `date`, because the clock was set back.
  ///
  /// A date that is later by no more than the tolerance is not moved: it may come from the clock of
  /// another process. If dates were not moved, a limit would block tasks until the clock reaches
  /// the old dates.
  mutating func rebase(to date: Int64, at now: Int64, tolerance: Int64) {
    if let last = starts.last, last > now + tolerance {
      starts = starts.map { $0 > now ? date : $0 }.sorted()
    }
    if let pause, pause.begin > now + tolerance {
      self.pause = Pause(begin: date, end: date + (pause.end - pause.begin))
    }
  }
}

/// Decides when attempts that share a limit may begin.
///
/// The limiter uses the dates of the last starts, as many as the limit allows, so it is exact. A
/// token bucket that is filled at the rate of the limit would allow nearly twice as many starts in
/// the interval after a pause.
struct RateLimiter: Sendable {
  let windows: [RateWindow]
  var history: StartHistory

  /// Returns how many attempts may begin at a date.
  func remainingStarts(at now: Int64) -> Int {
    if let pause = history.pause, pause.end > now { return 0 }
    var room = Int.max
    for window in windows {
      let begin = now - window.interval
      // The search begins with the last start, because mostly, few starts are within the window,
      // and these are the last ones.
      let first = history.starts.lastIndex { $0 <= begin }.map { $0 + 1 } ?? 0
      room = min(room, max(0, window.count - (history.starts.count - first)))
    }
    return room
  }

  /// Returns how long a number of starts takes at the rate of the strictest limit.
  func duration(ofStarts count: Int) -> Int64 {
    let each = windows.map { Double($0.interval) / Double($0.count) }.max() ?? 0
    return Int64(min(each * Double(count), Double(RateLimit.longestInterval.microseconds)))
  }

  /// Returns the earliest date from `now` on at which an attempt may begin.
  func nextStart(from now: Int64) -> Int64 {
    var date = max(now, history.pause?.end ?? now)
    for window in windows where history.starts.count >= window.count {
      date = max(date, history.starts[history.starts.count - window.count] + window.interval)
    }
    return date
  }
}

/// The histories in one value of a store, each under the number of its key.
///
/// The first byte is 1. Then, for each history, in the order of the numbers of their keys, there
/// are: the number of the key (8 bytes, the highest first), the start and the end of the pause (0
/// and 0 if there is none), the number of starts, the first start, and the time from each start to
/// the next. All of these except the number of the key are encoded with seven bits to a byte, the
/// lowest bits first, and with the highest bit set in all bytes but the last.
struct StartHistories: Sendable, Equatable {
  /// The version of the format.
  private static let formatVersion: UInt8 = 1
  /// The number of the history of a limit without keys.
  static let onlyKey: UInt64 = 0

  private(set) var histories: [UInt64: StartHistory] = [:]

  init() {}

  /// Reads the histories from the bytes of a value; without bytes, there are no histories.
  ///
  /// - Returns: The histories; `nil` if the bytes are malformed.
  init?(_ bytes: [UInt8]?) {
    guard let bytes else { return }
    guard bytes.first == Self.formatVersion else { return nil }
    var reader = Reader(bytes: bytes[1...])
    while !reader.bytes.isEmpty {
      guard let key = reader.readNumber(), let history = reader.readHistory() else { return nil }
      histories[key] = history
    }
  }

  /// The bytes of the value; `nil` if there are no histories.
  var bytes: [UInt8]? {
    guard !histories.isEmpty else { return nil }
    var bytes = [Self.formatVersion]
    for (key, history) in histories.sorted(by: { $0.key < $1.key }) {
      for shift in stride(from: 56, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: key >> shift))
      }
      bytes.append(varint: history.pause?.begin ?? 0)
      bytes.append(varint: history.pause?.end ?? 0)
      bytes.append(varint: Int64(history.starts.count))
      var last: Int64 = 0
      for start in history.starts {
        bytes.append(varint: start - last)
        last = start
      }
    }
    return bytes
  }

  subscript(key: UInt64) -> StartHistory {
    get { histories[key] ?? StartHistory() }
    set { histories[key] = newValue.isEmpty ? nil : newValue }
  }

  /// Applies a change to each history, and removes the histories that are then empty.
  mutating func changeAll(_ change: (inout StartHistory) -> Void) {
    histories = histories.compactMapValues { history in
      var history = history
      change(&history)
      return history.isEmpty ? nil : history
    }
  }

  /// An upper bound of the value's size, in bytes.
  var maxByteCount: Int { histories.values.reduce(1) { $0 + 40 + 9 * $1.starts.count } }

  private struct Reader {
    var bytes: ArraySlice<UInt8>

    mutating func readNumber() -> UInt64? {
      guard bytes.count >= 8 else { return nil }
      defer { bytes.removeFirst(8) }
      return bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// Reads a number of up to 62 bits, so that the sum of two such numbers can't overflow.
    mutating func readVarint() -> Int64? {
      var (number, shift): (Int64, Int64) = (0, 0)
      while let byte = bytes.popFirst() {
        guard shift < 56 || shift == 56 && byte < 64 else { return nil }
        number |= Int64(byte & 127) << shift
        if byte < 128 { return number }
        shift += 7
      }
      return nil
    }

    mutating func readHistory() -> StartHistory? {
      guard let begin = readVarint(), let end = readVarint(), let count = readVarint(),
        begin <= end, count <= RateWindow.maxCount
      else { return nil }
      var (starts, last): ([Int64], Int64) = ([], 0)
      for _ in 0..<count {
        guard let step = readVarint(), last + step < 1 << 61 else { return nil }
        last += step
        starts.append(last)
      }
      return StartHistory(
        starts: starts,
        pause: end > 0 ? StartHistory.Pause(begin: begin, end: end) : nil
      )
    }
  }
}

extension Date {
  /// The date in microseconds since 1970, as rate limits store dates.
  var microseconds: Int64 { Int64((storable.timeIntervalSince1970 * 1e6).rounded()) }

  /// Creates a date from microseconds since 1970, rounded to a date that stores can keep.
  init(microseconds: Int64) {
    self = Date(timeIntervalSince1970: Double(microseconds) / 1e6).storable
  }
}

extension [UInt8] {
  /// Appends a number with seven bits to a byte; a negative number counts as 0.
  fileprivate mutating func append(varint number: Int64) {
    var rest = UInt64(Swift.max(number, 0))
    while rest >= 128 {
      append(UInt8(rest & 127 | 128))
      rest >>= 7
    }
    append(UInt8(rest))
  }
}
