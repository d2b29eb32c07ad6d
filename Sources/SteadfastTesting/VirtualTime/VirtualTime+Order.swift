extension VirtualTime {
  /// In what order the tasks of a virtual time run when several can.
  public enum Order: Sendable, Hashable {
    /// As they became able to run; sleepers due at the same instant one after the other, each
    /// followed by all that it sets off.
    case inOrder
    /// As drawn from a seed, and sleepers due at the same instant all at once: other seeds explore
    /// other interleavings, the same seed repeats its own.
    case shuffled(seed: UInt64)
  }
}
