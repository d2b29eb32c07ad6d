#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import SystemC

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A thread that tells other processes of changes, and hears of theirs, on a connection of its own.
///
/// A notification takes a lock on the whole database while it is committed. So it is part of no
/// transaction that a caller waits for, and one is sent in 5 milliseconds at most.
final class HintExchange: Sendable {
  private struct State {
    var isWanted = false
    var isEnded = false
  }

  private static let interval = DispatchTimeInterval.milliseconds(5)

  private let place: DatabaseLocation
  private let listeners: HintListeners
  private let state = Mutex(State())
  private let wakeUp: WakeUpPipe
  /// What distinguishes this store's notifications.
  private let sender = String(UInt64.random(in: 0...UInt64.max), radix: 16)

  init(_ place: DatabaseLocation, _ listeners: HintListeners) throws(SystemCallError) {
    self.place = place
    self.listeners = listeners
    wakeUp = try WakeUpPipe()
  }

  /// Tells other stores that something may have changed, now or 5 milliseconds after the last time.
  func tellOthers() {
    let isNew = state.withLock { state in
      defer { state.isWanted = true }
      return !state.isWanted
    }
    if isNew { wakeUp.signal() }
  }

  /// Lets the thread end, after a notification that is still wanted.
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
          // Something may have been missed.
          listeners.tell()
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
        if texts.contains(where: { $0 != sender }) { listeners.tell() }
      } catch {
        // Without hints, queues look at each poll.
        database = nil
        guard !now.isEnded else { return }
        wakeUp.wait(for: nil, milliseconds: pause)
        pause = min(pause * 2, 5_000)
      }
    }
  }

  private func connect() throws -> Connection {
    let database = try Connection(place.connection.get().parameters)
    try database.execute("listen \(place.channel)")
    return database
  }

  private func notify(on database: Connection) throws {
    try database.send("select pg_notify($1, $2)", .text(place.channel), .text(sender))
    try database.flush()
  }
}

/// Ends the waiting of a thread for a connection.
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

  /// Ends the waiting that is under way, or the next one.
  func signal() {
    // A full pipe wakes the thread as well.
    var byte: UInt8 = 0
    _ = unsafe write(sender, &byte, 1)
  }

  /// Waits for a signal, for something to receive, or for the time to pass.
  func wait(for descriptor: Int32?, milliseconds: Int32) {
    var files = [receiver, descriptor].compactMap(\.self).map {
      pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
    }
    _ = unsafe poll(&files, nfds_t(files.count), milliseconds)
    var bytes = [UInt8](repeating: 0, count: 64)
    while unsafe read(receiver, &bytes, bytes.count) > 0 {}
  }
}

/// What the thread that writes notes for the one that claims, while that one needs it.
final class DeletedRowNotes: Sendable {
  /// What each queue has yet to hear; `nil` if nothing is noted.
  private let freed = Mutex<[ExactText: DeletedRows]?>(nil)

  /// Begins to note, or ends it.
  func set(isOn: Bool) {
    freed.withLock { freed in
      if (freed != nil) != isOn { freed = isOn ? [:] : nil }
    }
  }

  /// Notes what a transaction has made available, before the callers hear of it.
  ///
  /// - Parameters:
  ///   - group: Its changes.
  ///   - hasFreedOthers: Whether other tasks than those that it names may have become available.
  func note(_ group: BatchGroup, hasFreedOthers: Bool) {
    freed.withLock { freed in
      guard freed != nil else { return }
      var ofAll = DeletedRows(areAnywhere: hasFreedOthers)
      for batch in group.batches {
        for change in batch { freed?.note(change.change, &ofAll) }
      }
      freed?.noteForAll(ofAll)
    }
  }

  /// Records that tasks of any queue may have become available.
  func noteOthers() {
    freed.withLock { $0?.noteForAll(DeletedRows(areAnywhere: true)) }
  }

  /// What was noted for a queue since the last call.
  func take(forQueue queue: String) -> DeletedRows {
    freed.withLock { $0?.updateValue(DeletedRows(), forKey: ExactText(queue)) } ?? DeletedRows()
  }
}

extension [ExactText: DeletedRows] {
  fileprivate mutating func note(_ change: TaskChange, _ ofAll: inout DeletedRows) {
    switch change {
    case .insert(let record, _):
      self[ExactText(record.queue), default: DeletedRows()].add(record)
    case .retry(_, let date, _, _, _), .suspend(_, let date, awaiting: [], _):
      ofAll.add(date)
    case .succeed, .abandon, .park, .cancel, .pause, .extend, .remember, .setValue, .prune, .remove:
      break
    case .release, .unpark, .resume, .restart, .reschedule, .update, .rebase, .suspend, .complete:
      ofAll.areAnywhere = true
    @unknown default:
      ofAll.areAnywhere = true
    }
  }

  /// Notes for each queue what may concern tasks of any.
  fileprivate mutating func noteForAll(_ freed: DeletedRows) {
    guard freed.areAnywhere || freed.earliest != nil else { return }
    for queue in keys { self[queue]?.add(freed) }
  }
}

extension DeletedRows {
  fileprivate mutating func add(_ record: TaskRecord) {
    let lane = ClaimCursors.Lane(of: record)
    dates[lane] = min(dates[lane] ?? .distantFuture, record.availableDate)
  }

  fileprivate mutating func add(_ date: Date) {
    earliest = min(earliest ?? .distantFuture, date)
  }

  fileprivate mutating func add(_ other: DeletedRows) {
    areAnywhere = areAnywhere || other.areAnywhere
    if let date = other.earliest { add(date) }
  }
}
#endif
