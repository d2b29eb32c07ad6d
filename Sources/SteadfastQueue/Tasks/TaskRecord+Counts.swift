// A count may have been read from a file that anybody wrote: it stays where it is at the end of its
// range, instead of ending the process.
extension TaskRecord {
  /// How many attempts have failed when the present one has.
  var nextRetryCount: Int { Self.next(retryCount) }

  /// Notes that a process ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.next(interruptionCount) }

  private static func next(_ count: Int) -> Int { count < .max ? count + 1 : count }
}
