#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskContext {
  /// Suspends the task for a while, which takes no worker, no lease and no memory of the process.
  ///
  /// ```swift
  /// try await context.sleep("before the reminder", for: .seconds(3 * 86_400))
  /// try await mail.remind(order)
  /// ```
  /// The date on which the sleep ends is stored when the sleep is met first. This then throws
  /// ``TaskSuspended``, and the handler is called again on that date, by any process: it goes
  /// through its steps, whose values are known, and this returns. Whatever the handler does with
  /// the error, the task is suspended. A suspended task keeps its unique key and its place in
  /// order. If the clock turns out to have been ahead, the sleep is counted again from the present
  /// date.
  ///
  /// Put a sleep after what must come before it. Steps that are under way side by side with a sleep
  /// are cancelled with the handler.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep, which an attempt uses once.
  ///   - duration: how long the task sleeps; nothing below zero.
  /// - Throws: ``TaskSuspended``; a ``StepError`` for a name that can't be used;
  ///   `CancellationError` if the attempt was cancelled, or the store fails.
  public func sleep(_ name: String, for duration: Duration) async throws {
    try await sleep(name) { WaitEnd(after: duration, from: $0) }
  }

  /// Suspends the task until a date, as ``sleep(_:for:)`` does.
  ///
  /// The date that was given first counts, also in later attempts.
  ///
  /// - Parameters:
  ///   - name: the name of the sleep, which an attempt uses once.
  ///   - date: when the sleep ends.
  /// - Throws: the errors of ``sleep(_:for:)``; a ``TaskQueueError`` for a date that no store can
  ///   hold.
  public func sleep(_ name: String, until date: Date) async throws {
    try TaskQueueError.check(storable: date, "the date of the sleep '\(name)'")
    try await sleep(name) { _ in WaitEnd(at: date.storable) }
  }

  private func sleep(_ name: String, until first: (_ now: Date) -> WaitEnd) async throws {
    let stored = MemoryName.sleep(name)
    try await begin(name, stored)
    let known: WaitEnd? = try remembered(stored).map { try decoded($0, name) }
    let now = queue.now
    let end = known?.counted(at: now) ?? first(now)
    if end != known {
      try Task.checkCancellation()
      let bytes = try encoded(end, name)
      try check(bytes, under: name, stored)
      try await remember([(stored, bytes)])
    }
    guard end.date > queue.now else { return }
    throw suspend(until: end)
  }
}
