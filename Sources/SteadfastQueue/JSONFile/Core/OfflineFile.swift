#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The file of a queue, while no store has it open.
struct OfflineFile {
  let url: URL

  var errors: JSONFileErrors { JSONFileErrors(url: url) }

  /// Performs `body` on a thread of its own, while the file's lock keeps every store away.
  ///
  /// If there is no lock file, one is made and removed again.
  ///
  /// - Throws: a ``JSONFileError``, also if there is no file. In that case no lock file is made.
  func locked<Value: Sendable>(
    _ body: @escaping @Sendable (OfflineFile, FileStorage) throws -> Value
  ) async throws -> Value {
    let thread = try errors.translating { try IOThread() }
    return try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { continuation in
        thread.add {
          continuation.resume(with: Result { try errors.translating { try lockNow(body) } })
        }
      }
    }
  }

  private func lockNow<Value>(
    _ body: (OfflineFile, FileStorage) throws -> Value
  ) throws -> Value {
    try errors.checkURL()
    guard let options = try FileStorage.options(ofFileAt: url.path) else { throw errors.missing }
    let lock = try FileLock.acquire(for: url.path, options)
    defer { lock.discard() }
    return try body(self, FileStorage(path: url.path, options))
  }
}
