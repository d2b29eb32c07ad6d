/// What a change must survive before a store says that it is kept.
public enum Durability: Sendable, Hashable {
  /// A power cut.
  case durable
  /// The end of the process, however sudden, while the machine runs on.
  case relaxed
}
