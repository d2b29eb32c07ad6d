extension JSONFileStore {
  /// When what was written is flushed, so that it survives a power cut and not only the process.
  ///
  /// Whatever is chosen, a change is written before its call returns, and ``JSONFileStore/close()``
  /// flushes. What is kept with ``Durability/relaxed``, that an attempt has begun for instance, is
  /// flushed together with what comes later. What may be lost is always an end of the file: from
  /// some change on all of them, and none before it. A task that was lost was never enqueued; an
  /// end that was lost is a task that is performed again.
  ///
  /// - **The process ends**, however suddenly: nothing is lost that was acknowledged.
  /// - **The power fails**: what was not flushed may be lost.
  /// - **The file is damaged**, by its disk or by another program: that is found, and the file is
  ///   refused, where a good line behind the damage says that what was there had been flushed.
  ///   Every line says how much had been flushed when it was written. Damage without such a line
  ///   behind it looks like an end that a crash has torn: opening cuts the file off there, without
  ///   an error. That is damage which reaches the end of the file and, in a file that was not
  ///   closed in good order, damage to what was written last.
  ///
  /// Whoever wants damage to be found chooses ``eachBatch`` or ``atMostEvery(_:)``.
  public struct Flushing: Sendable, Hashable {
    enum Moment: Hashable {
      case eachBatch
      case atMostEvery(Duration)
      case leftToSystem
    }

    let moment: Moment

    /// Before the call returns: a power cut loses nothing that was acknowledged as durable.
    ///
    /// A flush takes from a tenth of a millisecond on a fast disk to ten of them and more on a slow
    /// one; concurrent calls share it. What the last flush has made durable is cut off if it is
    /// damaged and no line was written after it.
    ///
    /// It rests on the drive keeping what it reports as flushed. On Darwin the drive is told to
    /// empty its cache (`F_FULLFSYNC`). On a file system that does not support that, `fsync` is all
    /// that is done, which may leave what was written in the cache.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// At the latest so much time after a change was written: a power cut loses the changes of the
    /// last interval, and of the flush that ends it.
    ///
    /// The changes of the last interval in which there were any are cut off if they are damaged.
    ///
    /// A flush that fails is told to the next call. An interval of zero or less is as short as one
    /// may be.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// When the system sees fit: a power cut loses what it has not written yet, and all behind it,
    /// mostly the changes of the last half minute.
    ///
    /// The store itself flushes only when the file is opened, compacted and closed, and when a
    /// write has failed. Where anything is damaged that came since then, the rest of the file is
    /// cut off, which may be nearly all of it.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}
