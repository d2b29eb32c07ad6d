import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

// Deleting the file, whether it is open or not.
extension JSONFileCore {
  /// Deletes the file and closes the store.
  func destroy() async throws {
    if isForkedOff { throw errors.forkedOff }
    let isOpen = state.withLock { state in
      guard case .open = state.phase else { return false }
      state.deletesFile = true
      return true
    }
    // A file that is open is deleted when it is closed.
    if isOpen { return try await close() }
    // Why an earlier opening or closing has failed makes no difference now.
    try? await close()
    try await deleteClosedFile()
  }

  /// Deletes the file once, while its lock keeps every other store away.
  ///
  /// A caller that comes while the file is being deleted waits for the same end.
  private func deleteClosedFile() async throws {
    try await waitForThread { continuation in
      switch state.withLock({ $0.beginDestroying(continuation) }) {
      case .wait: break
      case .done: continuation.resume()
      case .delete:
        do {
          try errors.translating { try makeThread() }.add {
            self.endDestroying(Result { try self.errors.translating { try self.deleteNow() } })
          }
        } catch {
          endDestroying(.failure(error))
        }
      }
    }
  }

  private func endDestroying(_ result: Result<Void, any Error>) {
    let callers = state.withLock { state in
      defer { state.destroyers = [] }
      if case .success = result { state.isDestroyed = true }
      return state.destroyers
    }
    for caller in callers { caller.resume(with: result) }
  }

  private func deleteNow() throws {
    try errors.checkURL()
    let (lock, storage): (FileLock?, any JournalStorage)
    do {
      (lock, storage) = try opener()
    } catch FileLock.Failure.opening(.systemCall(let error)) where error.number == ENOENT {
      // Without a folder, there is no file.
      return
    }
    defer { lock?.discard() }
    // An earlier call may have deleted the file, but not durably.
    guard let file = try storage.open(.journal) else { return try storage.synchronizeFolder() }
    defer { file.close() }
    let source = try JournalSource(file)
    try checkFormat(of: source)
    // What was being written when a process ended has tasks too, and can be told only while the
    // file is there. A file of another program stays.
    do { try Leftover.clear(storage, beside: source) } catch is FileOpeningError {}
    try storage.openFolder()
    try storage.remove(.journal)
    try storage.synchronizeFolder()
  }

  /// Refuses a file of another format.
  ///
  /// A file that is empty or damaged, or that a newer version has written, is a queue's file.
  private func checkFormat(of source: JournalSource) throws {
    guard try source.withoutReservation().count > 0 else { return }
    let start = try source.read(0..<min(source.count, JournalLine.maxEnvelopeLength * 4))
    if Leftover.header(in: start) != nil { return }
    do throws(JournalProblem) {
      _ = try JournalReader.read(source)
    } catch {
      switch error {
      case .notAJournal, .unreadable: throw error
      case .newerVersion, .unknownKind, .damaged: return
      }
    }
  }
}

extension JSONFileCore.State {
  fileprivate enum DestroyingStep {
    case delete
    /// The file is being deleted already: wait for the end of that.
    case wait
    case done
  }

  /// Returns what becomes of a call that deletes a closed file.
  fileprivate mutating func beginDestroying(
    _ caller: CheckedContinuation<Void, any Error>
  ) -> DestroyingStep {
    if isDestroyed { return .done }
    destroyers.append(caller)
    return destroyers.count == 1 ? .delete : .wait
  }
}
