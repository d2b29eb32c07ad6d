/// The rate limits of a queue, and what is known of the starts that count for them.
///
/// It decides which of the tasks that were claimed may begin, and what is to be stored for that.
/// The values that it knows may be old, because another process has changed them. Storing finds
/// that out, and then it is asked again with the present ones.
struct RateLimits: Sendable {
  /// A value of the store as it was seen last.
  private struct Known: Sendable {
    var bytes: [UInt8]?
    var histories: StartHistories
  }

  /// How values begin that hold histories.
  static let valueName = "steadfast.limit"

  let scopes: [Scope]
  /// How far the clocks of processes on one store may be apart, in microseconds.
  private let tolerance: Int64
  /// When the clock was last found to be set back, or may have been.
  private var lastRebase: Int64?
  private let maxValueSize: Int
  private var known: [String: Known] = [:]
  /// For each key without a free start, how many tasks were put off until its next one.
  private(set) var lines: [Place: Line] = [:]

  init(
    _ limits: [RateLimit],
    tolerance: Int64,
    maxValueSize: Int = TaskQueueError.maxValueSize
  ) {
    var scopes: [Scope] = []
    for limit in limits {
      let window = RateWindow(limit.count, per: limit.interval)
      let name = limit.names?[0]
      // The value of a history is named after the first name alone.
      if limit.key == nil,
        let index = scopes.firstIndex(where: { $0.names?[0] == name && $0.key == nil })
      {
        scopes[index].add(limit, window)
        continue
      }
      // Of several limits with keys for the same tasks, each has its own keys.
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

  /// The values to read before tasks are claimed.
  var missingValues: [String] {
    scopes.filter { $0.key == nil && known[$0.valueName] == nil }.map(\.valueName)
  }

  /// Notes a value that was read.
  ///
  /// One that makes no sense counts as a limit that has just been used up: the limit holds, and
  /// tasks begin again when its interval has passed.
  ///
  /// - Returns: Whether it is to be mended, because it makes no sense or its dates lie in the
  ///   future. Otherwise, each process would count from its own beginning, and one that does not
  ///   live for the interval would begin no task.
  mutating func read(_ name: String, _ bytes: [UInt8]?, at now: Int64) -> Bool {
    let found = StartHistories(bytes)
    var histories = found ?? usedUp(name, at: now)
    let date = lastRebase.map { min($0, now) } ?? now
    histories.changeAll { $0.rebase(to: date, at: now, tolerance: tolerance) }
    known[name] = Known(bytes: bytes, histories: histories)
    return histories != found
  }

  /// Returns the bytes that are stored in place of a value that is to be mended, and notes them.
  mutating func mend(_ name: String, _ bytes: [UInt8]?, at now: Int64) -> [UInt8]? {
    _ = read(name, bytes, at: now)
    let mended = known[name]?.histories.bytes
    known[name]?.bytes = mended
    return mended
  }

  func usedUp(_ name: String, at now: Int64) -> StartHistories {
    var histories = StartHistories()
    // Which keys it had is unknown, so those of others begin with nothing used.
    guard let scope = scopes.first(where: { $0.key == nil && $0.valueName == name }) else {
      return histories
    }
    let count = scope.windows.map(\.count).max() ?? 0
    histories[StartHistories.onlyKey] =
      StartHistory(starts: Array(repeating: now, count: count))
    return histories
  }

  /// Notes that values are not as they are known.
  mutating func forget(_ names: some Sequence<String>) {
    for name in names { known[name] = nil }
  }

  /// Moves dates that are later than `now`, because the clock was set back.
  ///
  /// If all processes have that clock, what is read later and is dated later has happened before.
  mutating func rebase(to now: Int64, hasOneClock: Bool) {
    for name in known.keys {
      known[name]?.histories.changeAll { $0.rebase(to: now, at: now, tolerance: tolerance) }
    }
    lines = [:]
    if hasOneClock { lastRebase = now }
  }

  private func limiter(_ place: Place) -> RateLimiter {
    RateLimiter(
      windows: scopes[place.scope].windows,
      history: known[place.valueName]?.histories[place.key] ?? StartHistory()
    )
  }

  // MARK: Before a claim

  /// A limit that lets nothing begin before a date.
  struct UsedUp: Sendable, Hashable {
    let scope: Int
    let until: Int64
  }

  /// The limits without keys that are used up.
  func usedUpLimits(at now: Int64) -> [UsedUp] {
    scopes.indices.compactMap { index in
      guard scopes[index].key == nil else { return nil }
      let limiter = limiter(onlyPlace(of: index))
      return limiter.room(at: now) > 0
        ? nil : UsedUp(scope: index, until: limiter.nextStart(from: now))
    }
  }

  /// Returns the request for as many tasks as may begin now, as far as that is known without keys.
  func within(_ request: ClaimRequest, at now: Int64) -> ClaimRequest {
    var request = request
    for index in scopes.indices where scopes[index].key == nil {
      let room = limiter(onlyPlace(of: index)).room(at: now)
      guard let names = scopes[index].names else {
        request.limit = min(request.limit, room)
        continue
      }
      // A request can't list two names that Swift takes for the same.
      for name in names where request.names[exactly: name] != nil || request.names[name] == nil {
        request.names[name] = min(request.room(for: name), room)
      }
    }
    return request
  }

  private func onlyPlace(of scope: Int) -> Place {
    Place(scope: scope, valueName: scopes[scope].valueName, key: StartHistories.onlyKey)
  }

  // MARK: After a claim

  /// What becomes of tasks that were claimed; the numbers are their places in the claim.
  struct Admission: Sendable {
    /// They begin.
    var admitted: [Int] = []
    /// They return to their places in line.
    var released: [Int] = []
    /// They are put off until a date, because their key has no start left before.
    var postponed: [(index: Int, until: Int64)] = []
    /// What is to be stored before the tasks begin.
    var writes: [Write] = []
    fileprivate var lines: [Place: Line] = [:]
    fileprivate var histories: [String: StartHistories] = [:]
  }

  struct Write: Sendable {
    let valueName: String
    let old: [UInt8]?
    let new: [UInt8]?
  }

  enum Answer {
    /// Read these values, and ask again.
    case missing(Set<String>)
    case decided(Admission)
  }

  /// Returns where the starts of a task count.
  func places(of record: TaskRecord) -> [Place] {
    scopes.indices.compactMap { index in
      let scope = scopes[index]
      guard scope.concerns(record.name) else { return nil }
      guard let key = scope.key else { return onlyPlace(of: index) }
      // A payload that can't be decoded has no key. Its task is parked.
      guard let text = key(record) else { return nil }
      let number = Self.number(of: text)
      return Place(scope: index, valueName: scope.valueName(ofKey: number), key: number)
    }
  }

  /// Decides which of the tasks may begin now, in their order.
  ///
  /// Those that were denied before stay denied, whatever room there is.
  func admit(_ records: [TaskRecord], at now: Int64, denied: Denials = [:]) -> Answer {
    let places = records.map(places)
    let missing = Set(places.joined().lazy.map(\.valueName)).filter { known[$0] == nil }
    guard missing.isEmpty else { return .missing(missing) }
    var admission = Admission()
    admission.lines = lines.filter { $0.value.date > now }
    for (index, places) in places.enumerated() {
      if let date = denied[index] {
        admission.deny(index, until: date)
        continue
      }
      let denying = places.filter { !hasRoom($0, in: admission, at: now) }
      if denying.isEmpty {
        for place in places { start(place, in: &admission, at: now) }
        admission.admitted.append(index)
        continue
      }
      let dates = denying.filter { scopes[$0.scope].key != nil }.map {
        nextLook(of: records[index], at: $0, in: &admission, now)
      }
      admission.deny(index, until: dates.max())
    }
    admission.writes = admission.histories.sorted { $0.key < $1.key }.map { name, histories in
      Write(valueName: name, old: known[name]?.bytes, new: histories.bytes)
    }
    return .decided(admission)
  }

  private func limiter(_ place: Place, in admission: Admission) -> RateLimiter {
    var limiter = limiter(place)
    if let changed = admission.histories[place.valueName] { limiter.history = changed[place.key] }
    return limiter
  }

  private func hasRoom(_ place: Place, in admission: Admission, at now: Int64) -> Bool {
    guard limiter(place, in: admission).room(at: now) > 0 else { return false }
    let histories = histories(place, in: admission)
    // A value is full when very many keys have starts in it. Then further ones wait.
    return histories.maxByteCount + 64 <= maxValueSize
      || histories.histories[place.key] != nil && histories.maxByteCount + 16 <= maxValueSize
      || trimmed(histories, place, at: now).maxByteCount + 64 <= maxValueSize
  }

  private func histories(_ place: Place, in admission: Admission) -> StartHistories {
    admission.histories[place.valueName] ?? known[place.valueName]?.histories ?? StartHistories()
  }

  private func trimmed(
    _ histories: StartHistories,
    _ place: Place,
    at now: Int64
  ) -> StartHistories {
    var histories = histories
    histories.changeAll { $0.trim(scopes[place.scope].windows, at: now) }
    return histories
  }

  private func start(_ place: Place, in admission: inout Admission, at now: Int64) {
    var histories = trimmed(histories(place, in: admission), place, at: now)
    histories[place.key].start(at: now)
    admission.histories[place.valueName] = histories
  }

  /// Returns when a task looks again that finds no free start of its key.
  ///
  /// It looks when the next one is free, with the others of its key, so that the first in line gets
  /// it, whichever that is by then. A task that has looked before, and has many others ahead of it,
  /// looks when these may all have begun, and at least once in some starts: they may be cancelled.
  private func nextLook(
    of record: TaskRecord,
    at place: Place,
    in admission: inout Admission,
    _ now: Int64
  ) -> Int64 {
    let limiter = limiter(place, in: admission)
    let next = limiter.nextStart(from: now)
    // If the value is full, the task looks again when the limit's interval has passed once.
    guard next > now else { return now + (limiter.windows.map(\.interval).max() ?? 0) }
    var line = admission.lines[place] ?? Line(date: next)
    if line.date != next { line = Line(date: next) }
    let ahead = line.add(record.priority)
    admission.lines[place] = line
    guard ahead >= Line.nearCount, record.availableDate > record.createdDate else { return next }
    // A microsecond later than those that look whenever a start is free, and so behind them.
    return next + limiter.duration(ofStarts: min(ahead, Line.mostStarts)) + 1
  }

  /// Notes that what an admission says was stored.
  ///
  /// The tasks begin now. If storing has taken long, their starts count from now on for this
  /// process, not from the date of the decision.
  mutating func stored(_ admission: Admission, decidedAt date: Int64, at now: Int64) {
    lines = admission.lines
    for write in admission.writes {
      guard var histories = admission.histories[write.valueName] else { continue }
      histories.changeAll { $0.delay(from: date, to: now) }
      known[write.valueName] = Known(bytes: write.new, histories: histories)
    }
  }
}
