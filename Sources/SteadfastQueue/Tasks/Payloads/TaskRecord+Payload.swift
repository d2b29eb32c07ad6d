extension TaskRecord {
  /// Returns the task's payload, as its handler gets it.
  ///
  /// ```swift
  /// let letters = try await queue.tasks(matching: .deadLetters)
  /// for letter in letters where letter.name == Mail.taskName {
  ///   let mail = try letter.payload(as: Mail.self)
  /// }
  /// ```
  /// ``TaskPayload/decode(from:version:)`` reads a payload that an earlier version of the type has
  /// stored.
  ///
  /// - Parameter type: the payload's type; ``name`` must be its ``TaskPayload/taskName`` or one of
  ///   its ``TaskPayload/formerTaskNames``.
  /// - Returns: the payload.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/undecodablePayload`` if the
  ///   task's name is not the type's, or if the payload can't be decoded; with the code
  ///   ``TaskQueueError/Code/unopenedPayload`` if the payload is sealed and can't be opened.
  ///   Neither error shows the payload.
  public func payload<Payload: TaskPayload>(as type: Payload.Type = Payload.self) throws -> Payload
  {
    guard name == Payload.taskName || Payload.formerTaskNames.contains(name) else {
      throw TaskQueueError(
        .undecodablePayload,
        "the task \(id) is named '\(name)', and \(TypeName.readable(type)) has the name "
          + "'\(Payload.taskName)': ask for the payload with the type that the task was enqueued with"
      )
    }
    do {
      return try decodedPayload(as: type)
    } catch let error as UndecodablePayload {
      throw TaskQueueError(.undecodablePayload, "\(error) (the task \(id))")
    } catch let error as TaskQueueError {
      throw error
    } catch {
      // The error may show the payload.
      throw TaskQueueError(
        .undecodablePayload,
        "the payload of the task \(id) ('\(name)') can't be encoded: it throws a "
          + "\(TypeName.readable(Swift.type(of: error)))"
      )
    }
  }
}
