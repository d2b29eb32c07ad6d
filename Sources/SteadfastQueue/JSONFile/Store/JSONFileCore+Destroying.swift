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
    if state.withLock(\.isDestroyed) { return }
    try await deleteClosedFile()
    state.withLock { $0.isDestroyed = true }
  }

  /// Deletes the file while its lock keeps every store away.
  private func deleteClosedFile() async throws {
    let thread = try errors.translating { try makeThread() }
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { continuation in
        thread.add {
          continuation.resume(
            with: Result { try self.errors.translating { try self.deleteNow() } }
          )
        }
      }
    }
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
    guard let file = try storage.open(.journal) else { return }
    defer { file.close() }
    let source = try JournalSource(file)
    try checkFormat(of: source)
    // What was being written when a process ended has tasks too. A file of another program stays.
    try? Leftover.clear(storage, beside: source)
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
