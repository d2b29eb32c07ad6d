import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Prints a line in one write, so that the whole line is written before anything else happens.
func printLine(_ line: String) {
  let bytes = Array((line.split(whereSeparator: \.isNewline).joined(separator: " ") + "\n").utf8)
  let count = unsafe bytes.withUnsafeBytes { unsafe write(1, $0.baseAddress, $0.count) }
  // The reader has exited, or only a part of the line was written. The process exits, so that no
  // later output can depend on a line that may be missing.
  if count != bytes.count { exit(3) }
}

enum Fact {
  /// Returns the word that stands for an error in a printed fact.
  static func word(for error: any Error) -> String {
    let codes: [(JSONFileError.Code, String)] = [
      (.inUse, "inUse"), (.notAQueueFile, "notAQueueFile"), (.newerVersion, "newerVersion"),
      (.damaged, "damaged"), (.unsafeFile, "unsafeFile"), (.systemCall, "systemCall"),
      (.outcomeUnknown, "outcomeUnknown"), (.displaced, "displaced"), (.changed, "changed"),
      (.closed, "closed"),
    ]
    switch error {
    case let error as JSONFileError:
      return codes.first { $0.0 == error.code }?.1 ?? "other"
    case is TaskQueueError: return "queue"
    case is CancellationError: return "cancelled"
    case is Misuse: return "misuse"
    default: return "other"
    }
  }
}
