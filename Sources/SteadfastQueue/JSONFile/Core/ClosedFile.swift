#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A queue's file that no store has open.
struct ClosedFile {
  let url: URL

  var errors: JSONFileErrors { JSONFileErrors(url: url) }

  /// Works on the file while its lock keeps every store away, on a thread of its own.
  ///
  /// A lock file that was made for that is removed.
  ///
  /// - Throws: a ``JSONFileError``, also if there is no file; then no lock file is made.
  func locked<Value: Sendable>(
    _ body: @escaping @Sendable (ClosedFile, FileStorage) throws -> Value
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
    _ body: (ClosedFile, FileStorage) throws -> Value
  ) throws -> Value {
    try errors.checkURL()
    guard let options = try FileStorage.options(ofFileAt: url.path) else { throw errors.missing }
    let lock = try FileLock.acquire(for: url.path, options)
    defer { lock.discard() }
    return try body(self, FileStorage(path: url.path, options))
  }
}
