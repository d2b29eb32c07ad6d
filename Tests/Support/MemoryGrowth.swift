#if os(Linux)
#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// By how many bytes the process's resident memory has grown while the body ran.
public nonisolated(nonsending) func memoryGrowth(
  during body: nonisolated(nonsending) () async throws -> Void
) async throws -> Int {
  let before = try residentBytes()
  try await body()
  return try residentBytes() - before
}

/// Returns by how many bytes the memory of this process has grown in the round that took the least.
///
/// What is held grows with every round. What the allocator keeps grows in the first ones only, for
/// longer if the threads are kept from running.
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
