#if os(Linux)
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Returns the number of bytes by which the process's resident memory grew while `body` ran.
public nonisolated(nonsending) func memoryGrowth(
  during body: nonisolated(nonsending) () async throws -> Void
) async throws -> Int {
  let before = try residentBytes()
  try await body()
  return try residentBytes() - before
}

/// Returns the smallest growth of the process's resident memory in any of several rounds, in bytes.
///
/// Memory that `body` retains grows with every round. The memory of the allocator itself grows only
/// in the first rounds, or in more rounds if threads get little processor time.
public nonisolated(nonsending) func leastMemoryGrowth(
  inRounds rounds: Int,
  during body: nonisolated(nonsending) () async throws -> Void
) async throws -> Int {
  var least = Int.max
  for _ in 0..<rounds { least = min(least, try await memoryGrowth(during: body)) }
  return least
}

private func residentBytes() throws -> Int {
  let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
  let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
  let kilobytes = line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
  guard let kilobytes else { throw CocoaError(.fileReadCorruptFile) }
  return kilobytes * 1_024
}
#endif
