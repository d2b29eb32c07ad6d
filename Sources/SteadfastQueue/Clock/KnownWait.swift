/// A wait of which can be told what for, and why it may never end.
package struct KnownWait: Sendable {
  /// Tells it, given the clock of whoever asks.
  package let describe: @Sendable (any WallClock) async -> String
}

extension RealWork {
  /// Performs `operation`, which waits, and lets whoever keeps the clock know for what.
  ///
  /// Where no virtual time is installed it costs one look at an atomic value.
  nonisolated(nonsending)
    static func waiting<Success>(
      _ describe: @escaping @Sendable (any WallClock) async -> String,
      _ operation: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success
  {
    guard let observer = observer else { return try await operation() }
    let number = observer.waitBegan(KnownWait(describe: describe))
    defer { observer.waitEnded(number) }
    return try await operation()
  }

  /// Whether payloads are to be encoded and decoded, as they are over a restart.
  static var encodesPayloads: Bool { observer?.encodesPayloads ?? false }
}
