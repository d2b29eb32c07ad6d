#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskQueue {
  /// Adds tasks that may wait for each other in one step: all of them or, if it throws, none.
  ///
  /// ```swift
  /// try await queue.enqueue { tasks in
  ///   let album = try tasks.add(CreateAlbum(title: "Summer"))
  ///   let cover = try tasks.add(UploadCover())
  ///   try tasks.add(Share(), options: TaskOptions(after: [album, cover]))
  /// }
  /// ```
  ///
  /// If another task has the unique key of one of them, none is added.
  ///
  /// - Parameter body: a closure that adds the tasks. It may be called more than once.
  /// - Returns: the tasks, in the order in which they were added.
  /// - Throws: what `body` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unmetDependency`` if one of them names a task that is not in the
  ///   store, or has ended without success, with ``TaskQueueError/Code/duplicate`` if another task
  ///   has a unique key; what the store throws. After an error that says that the outcome is
  ///   unknown, all of the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue(
    together body: (inout TaskDrafts) throws -> Void
  ) async throws -> [EnqueuedTask] {
    try await open()
    return try await add(.reject) { now in
      var drafts = TaskDrafts(for: self, at: now)
      try body(&drafts)
      return drafts.records
    }
  }

  /// Adds a batch of tasks, and one that follows when all of them have ended, in one step.
  ///
  /// ```swift
  /// let notice = Notify(album: album)
  /// let batch = try await queue.enqueue(contentsOf: photos, then: notice)
  /// ```
  ///
  /// With the follower's ``TaskOptions/when``, it follows if all have succeeded, which is the
  /// default, or however they have ended. In the first case it is cancelled as soon as one of them
  /// ends without success; the others go on. If there are no payloads, it is available at once.
  ///
  /// A handler of a task of the batch can add further ones
  /// (``TaskContext/enqueueInBatch(_:options:)``). If another task has the unique key of one of
  /// them, none is added.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers of the batch are given, one payload for each task.
  ///   - options: the options of the tasks of the batch.
  ///   - follower: the payload of the task that follows. It must have no unique key.
  ///   - followerOptions: the options of the task that follows.
  /// - Returns: the tasks.
  /// - Throws: as ``enqueue(together:)``.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload, Follower: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    then follower: Follower,
    followerOptions: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedBatch {
    guard follower.storedUniqueKey == nil else {
      throw TaskQueueError(
        .invalidArgument,
        "the task that follows the batch has the unique key '\(follower.storedUniqueKey ?? "")': another "
          + "task could stand for it, which would not follow; give it no unique key"
      )
    }
    let payloads = Array(payloads)
    var chosen = options
    chosen.fill(from: Payload.options)
    var tasks = try await enqueue { drafts in
      let id = drafts.nextID()
      for payload in payloads {
        let draft = Draft(Payload.taskName, StoredPayload(payload), payload.storedUniqueKey)
        try drafts.add(draft, chosen, follower: id)
      }
      try drafts.addFollower(follower, id, followerOptions)
    }
    let last = tasks.removeLast()
    return EnqueuedBatch(tasks: tasks, follower: last)
  }

  /// Adds tasks to a batch that was enqueued before.
  nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: [Payload],
    options: TaskOptions,
    inBatchBefore follower: TaskID
  ) async throws -> [EnqueuedTask] {
    var chosen = options
    chosen.fill(from: Payload.options)
    chosen.fill(from: configuration.taskDefaults)
    guard chosen.after.isEmpty, chosen.inOrder == nil,
      payloads.allSatisfy({ $0.storedUniqueKey == nil })
    else {
      throw TaskQueueError(
        .invalidArgument,
        "a task that is added to a batch has 'after', 'inOrder' or a unique key: it could wait for "
          + "the task that follows the batch, which waits for it"
      )
    }
    return try await enqueue { drafts in
      for payload in payloads {
        let draft = Draft(Payload.taskName, StoredPayload(payload), nil)
        try drafts.add(draft, chosen, follower: follower)
      }
    }
  }
}

extension TaskDrafts {
  fileprivate mutating func addFollower<Follower: TaskPayload>(
    _ payload: Follower,
    _ id: TaskID,
    _ options: TaskOptions
  ) throws {
    var chosen = options
    chosen.fill(from: Follower.options)
    try add(TaskQueue.Draft(Follower.taskName, StoredPayload(payload), nil), chosen, id: id)
  }
}
