/// Tells whether a condition holds, such as that there is a network.
///
/// ``NetworkMonitor`` is one. Write your own for any other condition of the machine or the program:
///
/// ```swift
/// struct ChargerMonitor: ConditionMonitor {
///   func values() -> AsyncStream<Bool> {
///     AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
///       let charger = Charger { continuation.yield($0) }
///       continuation.onTermination = { _ in charger.disconnect() }
///       charger.connect()
///     }
///   }
/// }
/// ```
public protocol ConditionMonitor: Sendable {
  /// Begins to monitor the condition, and returns whether it holds now, and each change.
  ///
  /// Each call returns a stream of its own. Its first element comes without waiting for a change.
  /// Each further element tells the opposite of the one before. The stream buffers one element, the
  /// newest, so a consumer that is slow may miss a change and the one that reverted it, and then
  /// gets an element that it already had.
  ///
  /// The stream ends when its consumer does: when the Swift task that awaits an element is
  /// cancelled, or when nothing refers to the stream and its iterators any more. Then the monitor
  /// stops, and releases what it held for this stream: threads, files, observers.
  func values() -> AsyncStream<Bool>
}
