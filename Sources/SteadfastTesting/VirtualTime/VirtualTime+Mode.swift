extension VirtualTime {
  /// Who moves the time.
  public enum Mode: Sendable, Hashable {
    /// When nothing else can run, the time moves to the next deadline by itself.
    case automatic
    /// The time moves only in ``VirtualTime/advance(by:)``, and no further than asked for.
    case manual
  }
}
