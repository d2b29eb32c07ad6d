import Synchronization

/// A list of suspended Swift tasks, each of which is resumed exactly once.
///
/// A waiter is resumed with a value or with an error, or when it is cancelled. The state for which
/// it waits is kept elsewhere, behind a lock of its own. Code that changes the state resumes the
/// waiters after the change. The `check` of a waiter is called just before it is suspended, so that
/// it misses no change.
final class Waiters<Value: Sendable>: Sendable {
  private let list = Mutex(WaiterList<CheckedContinuation<Value, any Error>>())
  private let lastKey = Atomic<UInt64>(0)

  private func nextKey() -> UInt64 { lastKey.add(1, ordering: .relaxed).newValue }

  /// Waits to be resumed, unless `check` returns a result.
  ///
  /// - Throws: The error with which the waiter is resumed; `CancellationError` when cancelled.
  func wait(unless check: () -> Result<Value, any Error>?) async throws -> Value {
    let key = nextKey()
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result = list.withLock { list -> Result<Value, any Error>? in
          if let result = check() { return result }
          if Task.isCancelled { return .failure(CancellationError()) }
          list.add(continuation, key: key)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      list.withLock { $0.remove(key: key) }?.resume(throwing: CancellationError())
    }
  }

  /// Waits to be resumed with a value, unless `check` returns one.
  ///
  /// When the caller is cancelled, it is resumed with the value that `cancelled` returns. If that
  /// is `nil`, it keeps waiting. Such a waiter must not be resumed with an error.
  func waitUncancelled(
    unless check: () -> Value?,
    cancelled: @Sendable () -> Value?
  ) async -> Value {
    let key = nextKey()
    return await withTaskCancellationHandler {
      await waitUncancelled(key, unless: check)
    } onCancel: {
      guard let value = cancelled() else { return }
      list.withLock { $0.remove(key: key) }?.resume(returning: value)
    }
  }

  /// Waits to be resumed with a value, even if cancelled, unless `check` returns one.
  ///
  /// Such a waiter must not be resumed with an error.
  func waitUncancelled(unless check: () -> Value?) async -> Value {
    await waitUncancelled(nil, unless: check)
  }

  private func waitUncancelled(_ key: UInt64?, unless check: () -> Value?) async -> Value {
    let result = try? await withCheckedThrowingContinuation { continuation in
      let value = list.withLock { list -> Value? in
        if let value = check() { return value }
        list.add(continuation, key: key ?? nextKey())
        return nil
      }
      if let value { continuation.resume(returning: value) }
    }
    guard let result else {
      preconditionFailure("a waiter that can't throw was resumed with an error")
    }
    return result
  }

  /// Resumes the waiter that came last, if there is one.
  func resumeLast(returning value: Value) {
    list.withLock { $0.popLast() }?.resume(returning: value)
  }

  func resumeAll(with result: Result<Value, any Error>) {
    let all = list.withLock { $0.isEmpty ? [] : $0.takeAll() }
    for continuation in all { continuation.resume(with: result) }
  }
}

/// A list of waiters in order of arrival, each of which can be removed at any time.
///
/// A removed waiter leaves a gap in the array. All gaps are closed together once there are more
/// gaps than waiters. So the average cost of a removal is constant, apart from the binary search.
struct WaiterList<Waiter> {
  private var list: [(key: UInt64, waiter: Waiter?)] = []
  private var gapCount = 0
  /// The elements before this index are gaps.
  private var start = 0
  /// The number of elements that were moved to close gaps, for tests.
  private(set) var moveCount = 0

  var isEmpty: Bool { list.count == gapCount }

  /// Adds a waiter, and keeps the list sorted by key.
  ///
  /// Most keys are greater than all earlier ones, so the search starts at the end.
  mutating func add(_ waiter: Waiter, key: UInt64) {
    var index = list.endIndex
    while index > 0, list[index - 1].key > key { index -= 1 }
    list.insert((key, waiter), at: index)
    start = min(start, index)
  }

  /// Removes and returns the waiter with a key, if it is in the list.
  mutating func remove(key: UInt64) -> Waiter? {
    var range = list.indices
    while !range.isEmpty {
      let middle = range.lowerBound + range.count / 2
      if list[middle].key == key {
        guard let waiter = list[middle].waiter else { return nil }
        list[middle].waiter = nil
        gapCount += 1
        closeGaps()
        return waiter
      }
      range = list[middle].key < key ? middle + 1..<range.upperBound : range.lowerBound..<middle
    }
    return nil
  }

  /// Removes and returns the waiter that came first.
  mutating func popFirst() -> Waiter? {
    while start < list.endIndex {
      let index = start
      start += 1
      guard let waiter = list[index].waiter else { continue }
      list[index].waiter = nil
      gapCount += 1
      closeGaps()
      return waiter
    }
    return nil
  }

  /// Removes and returns the waiter that came last.
  mutating func popLast() -> Waiter? {
    while let last = list.popLast() {
      if let waiter = last.waiter { return waiter }
      gapCount -= 1
    }
    return nil
  }

  /// Removes and returns all waiters, in order of arrival.
  mutating func takeAll() -> [Waiter] {
    defer {
      list = []
      gapCount = 0
      start = 0
    }
    return list.compactMap(\.waiter)
  }

  private mutating func closeGaps() {
    guard gapCount * 2 > list.count else { return }
    moveCount += list.count
    list.removeAll { $0.waiter == nil }
    gapCount = 0
    start = 0
  }
}

extension WaiterList: Sendable where Waiter: Sendable {}
