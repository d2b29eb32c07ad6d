extension JSONFileStore {
  /// When written changes are flushed, so that they survive a power cut and not only the process.
  ///
  /// With every choice, a change is written before its call returns, and ``JSONFileStore/close()``
  /// flushes. A change that is stored with ``Durability/relaxed``, for example that an attempt has
  /// begun, is flushed together with later changes. Only the end of the file can be lost: every
  /// change from some point on, and none before it. A lost task was, in effect, never enqueued. If
  /// the end of a task is lost, the task is performed again.
  ///
  /// - **The process ends**, however suddenly: nothing that was acknowledged is lost.
  /// - **The power fails**: what was not flushed may be lost.
  /// - **The file is damaged**, by its disk or by another program: opening finds the damage and
  ///   refuses the file if a good line after the damage says that the damaged part had been
  ///   flushed. Every line says how much had been flushed when it was written. Damage without such
  ///   a line after it looks like an end that a crash has torn, and opening cuts the file off
  ///   there, without an error. This applies to damage that reaches the end of the file. In a file
  ///   that was not closed in good order, it also applies to damage to what was written last.
  ///
  /// If damage must be found, choose ``eachBatch`` or ``atMostEvery(_:)``.
  public struct Flushing: Sendable, Hashable {
    enum Moment: Hashable {
      case eachBatch
      case atMostEvery(Duration)
      case leftToSystem
    }

    let moment: Moment

    /// Flushes before the call returns.
    ///
    /// A power cut loses nothing that was acknowledged as durable. A flush takes from a tenth of a
    /// millisecond on a fast disk to ten milliseconds and more on a slow one. Concurrent calls
    /// share it. What the last flush has made durable is cut off if it is damaged and no line was
    /// written after it.
    ///
    /// This relies on a drive that does not lose what it reports as flushed. On Darwin, the store
    /// tells the drive to empty its cache (`F_FULLFSYNC`). On a file system that does not support
    /// that, the store only calls `fsync`, which may leave what was written in the cache.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// Flushes at the latest when `interval` has passed after a change was written.
    ///
    /// A power cut loses the changes of the last interval, and of the flush that ends it. The
    /// changes of the last interval in which there were any are cut off if they are damaged.
    ///
    /// If a flush fails, the next call throws the error. An interval of zero or less means the
    /// shortest one possible.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// Leaves it to the system when to flush.
    ///
    /// A power cut loses what the system has not written yet, and everything after that: mostly the
    /// changes of the last half minute.
    ///
    /// The store itself flushes only when the file is opened, compacted and closed, and when a
    /// write has failed. If anything is damaged that was written since then, the rest of the file
    /// is cut off, which may be nearly all of it.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}
