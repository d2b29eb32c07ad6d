#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import SystemC
import SystemFoundation

/// A thread that notifies other processes of changes, and receives their notifications.
///
/// The thread has its own connection. A notification locks the whole database during its commit. So
/// a notification is never part of a transaction that a caller waits for, and is sent at most every
/// 5 milliseconds.
final class HintExchange: Sendable {
  private struct State {
    var isWanted = false
    var isEnded = false
  }

  private static let interval = DispatchTimeInterval.milliseconds(5)

  private let location: DatabaseLocation
  private let listeners: HintListeners
  private let state = Mutex(State())
  private let wakeUp: WakeUpPipe
  /// The payload by which the store recognizes its own notifications.
  private let sender = String(UInt64.random(in: 0...UInt64.max), radix: 16)

  init(_ location: DatabaseLocation, _ listeners: HintListeners) throws(SystemCallError) {
    self.location = location
    self.listeners = listeners
    wakeUp = try WakeUpPipe()
  }

  /// Notifies other stores of a possible change, at the earliest 5 milliseconds after the last
  /// notification.
  func notifyOtherStores() {
    let isNew = state.withLock { state in
      defer { state.isWanted = true }
      return !state.isWanted
    }
    if isNew { wakeUp.signal() }
  }

  /// Lets the thread end after it sends a pending notification.
  func end() {
    state.withLock { $0.isEnded = true }
    wakeUp.signal()
  }

  // MARK: The thread

  func run() {
    var database: Connection?
    var next = DispatchTime.now()
    var pause: Int32 = 100
    while true {
      let now = state.withLock { $0 }
      do {
        if database == nil {
          guard !now.isEnded else { return }
          database = try connect()
          pause = 100
          // Notifications may have been missed.
          listeners.notifyAll()
        }
        guard let database else { continue }
        if now.isWanted, DispatchTime.now() >= next || now.isEnded {
          state.withLock { $0.isWanted = false }
          try notify(on: database)
          next = .now() + Self.interval
        }
        guard !now.isEnded else { return }
        wakeUp.wait(for: database.descriptor, milliseconds: now.isWanted ? 5 : -1)
        let texts = try database.takeNotifications()
        if texts.contains(where: { $0 != sender }) { listeners.notifyAll() }
      } catch {
        // Without hints, queues still poll.
        database = nil
        guard !now.isEnded else { return }
        wakeUp.wait(for: nil, milliseconds: pause)
        pause = min(pause * 2, 5_000)
      }
    }
  }

  private func connect() throws -> Connection {
    let database = try Connection(location.connection.get().parameters)
    try database.execute("listen \(location.channel)")
    return database
  }

  private func notify(on database: Connection) throws {
    try database.send("select pg_notify($1, $2)", .text(location.channel), .text(sender))
    try database.flush()
  }
}

/// A pipe that wakes a thread while the thread waits for input on a connection.
final class WakeUpPipe: Sendable {
  private let receiver: Int32
  private let sender: Int32

  init() throws(SystemCallError) {
    var ends: [Int32] = [-1, -1]
    guard unsafe pipe(&ends) == 0 else { throw .last("pipe") }
    (receiver, sender) = (ends[0], ends[1])
    for end in ends {
      _ = fcntl(end, F_SETFD, FD_CLOEXEC)
      _ = fcntl(end, F_SETFL, O_NONBLOCK)
    }
  }

  deinit {
    _ = close(receiver)
    _ = close(sender)
  }

  /// Ends the current wait, or the next one.
  func signal() {
    // If the pipe is full, this write fails, but earlier bytes wake the thread.
    var byte: UInt8 = 0
    _ = unsafe write(sender, &byte, 1)
  }

  /// Waits for a signal, or for input on a descriptor, until the time has passed.
  ///
  /// If `milliseconds` is negative, there is no time limit.
  func wait(for descriptor: Int32?, milliseconds: Int32) {
    var files = [receiver, descriptor].compactMap(\.self).map {
      pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
    }
    _ = unsafe poll(&files, nfds_t(files.count), milliseconds)
    var bytes = [UInt8](repeating: 0, count: 64)
    while unsafe read(receiver, &bytes, bytes.count) > 0 {}
  }
}

/// Records the tasks that the writer thread makes available, for the thread that claims.
///
/// Nothing is recorded while the claiming thread does not use cursors.
final class FreedTaskRecorder: Sendable {
  /// The recorded tasks of each queue that the claiming thread has not taken yet; `nil` if
  /// recording is off.
  private let freed = Mutex<[ExactText: FreedTasks]?>(nil)

  /// Turns recording on or off.
  func setRecording(isOn: Bool) {
    freed.withLock { freed in
      if (freed != nil) != isOn { freed = isOn ? [:] : nil }
    }
  }

  /// Records the tasks that a transaction made available.
  ///
  /// Call this before the calls of the transaction return.
  ///
  /// - Parameters:
  ///   - group: The changes of the transaction.
  ///   - hasFreedOthers: Whether tasks may have become available that the changes do not name.
  func record(_ group: BatchGroup, hasFreedOthers: Bool) {
    freed.withLock { freed in
      guard freed != nil else { return }
      var ofAll = FreedTasks(areAnywhere: hasFreedOthers)
      for batch in group.batches {
        for change in batch { freed?.add(freedBy: change.change, orToAllQueues: &ofAll) }
      }
      freed?.addToAllQueues(ofAll)
    }
  }

  /// Records that tasks of any queue may have become available.
  func recordTasksFreedAnywhere() {
    freed.withLock { $0?.addToAllQueues(FreedTasks(areAnywhere: true)) }
  }

  /// Removes and returns what was recorded for a queue since the last call.
  func takeRecords(forQueue queue: String) -> FreedTasks {
    freed.withLock { $0?.updateValue(FreedTasks(), forKey: ExactText(queue)) } ?? FreedTasks()
  }
}

extension [ExactText: FreedTasks] {
  /// Records what a change made available: in the task's queue, or in `ofAll` if the change does
  /// not name the queue.
  fileprivate mutating func add(
    freedBy change: TaskChange,
    orToAllQueues ofAll: inout FreedTasks
  ) {
    switch change {
    case .insert(let record, _):
      self[ExactText(record.queue), default: FreedTasks()].add(record)
    case .move(_, let move) where move.kind == .retry: move.availableDate.map { ofAll.add($0) }
    case .memory(.suspend(_, let date, awaiting: [], _)): ofAll.add(date)
    case .move(_, let move) where move.kind == .park || move.kind == .pause: break
    case .end, .extend, .command, .memory(.remember), .setValue, .broad(.prune), .remove: break
    case .move, .update, .memory, .broad: ofAll.areAnywhere = true
    @unknown default:
      ofAll.areAnywhere = true
    }
  }

  /// Adds to each queue the tasks that may belong to any queue.
  fileprivate mutating func addToAllQueues(_ freed: FreedTasks) {
    guard freed.areAnywhere || freed.earliest != nil else { return }
    for queue in keys { self[queue]?.add(freed) }
  }
}

extension FreedTasks {
  fileprivate mutating func add(_ record: TaskRecord) {
    add(record.availableDate, in: ClaimCursors.Lane(of: record))
  }

  mutating func add(_ date: Date, in lane: ClaimCursors.Lane) {
    dates[lane] = min(dates[lane] ?? .distantFuture, date)
  }

  fileprivate mutating func add(_ date: Date) {
    earliest = min(earliest ?? .distantFuture, date)
  }

  fileprivate mutating func add(_ other: FreedTasks) {
    areAnywhere = areAnywhere || other.areAnywhere
    if let date = other.earliest { add(date) }
  }
}
#endif
