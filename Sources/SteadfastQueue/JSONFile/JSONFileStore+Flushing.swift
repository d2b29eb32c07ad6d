extension JSONFileStore {
  /// When what was written is flushed, so that it survives a power cut and not only the process.
  ///
  /// Whatever is chosen: a change is written before its call returns and so survives the end of the
  /// process, however sudden; what a power cut takes away is a number of the latest changes, never
  /// one of those before; and ``JSONFileStore/close()`` flushes. A task that was lost was never
  /// enqueued; an end that was lost is a task that is performed again.
  public struct Flushing: Sendable, Hashable {
    enum Moment: Hashable {
      case eachBatch
      case atMostEvery(Duration)
      case leftToSystem
    }

    let moment: Moment

    /// Before the call returns: a power cut loses nothing that was acknowledged.
    ///
    /// A flush takes from a tenth of a millisecond on a fast disk to ten of them and more on a slow
    /// one; concurrent calls share it.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// At the latest so much time after a change was written: a power cut loses the changes of the
    /// last interval.
    ///
    /// A flush that fails is told to the next call. An interval of zero or less is as short as one
    /// may be.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// When the system sees fit: a power cut loses the changes of the last half minute, about.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}
