/// A wait that can say what it waits for, and why it may never end.
package struct KnownWait: Sendable {
  /// Returns the description, given the clock of the observer that asks for it.
  package let describe: @Sendable (any WallClock) async -> String
}

extension RealWork {
  /// Performs `operation`, which waits, and tells the observer of real work what it waits for.
  ///
  /// If no virtual time is installed, this costs one read of an atomic value.
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

  /// Whether payloads must be encoded and decoded, as they are across a restart.
  static var encodesPayloads: Bool { observer?.encodesPayloads ?? false }
}
