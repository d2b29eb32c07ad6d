import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

extension JSONFileCore {
  func openAndInsert(_ record: TaskRecord) async throws -> [ChangeOutcome] {
    try await open()
    return try await insert(record)
  }
}

extension TaskRecord {
  /// A task so large that three such tasks fill a file.
  static func large(_ number: Int) -> TaskRecord {
    let payload = Array(#"{"text":"\#(String(repeating: "x", count: 800))"}"#.utf8)
    return make(number).replacing(payload: StoredPayload(payload, format: .json))
  }
}

enum Size { case small, large }

/// Adds tasks until the file is full, and returns the number that fitted, and the error.
func fill(
  _ core: JSONFileCore,
  _ size: Size = .small
) async throws -> (count: Int, error: JSONFileError) {
  var count = 0
  while true {
    do {
      let number = 10 + count
      _ = try await core.openAndInsert(size == .small ? .make(number) : .large(number))
      count += 1
    } catch let error as JSONFileError {
      return (count, error)
    }
  }
}

func claim(_ core: JSONFileCore, _ limit: Int) async throws -> [Lease] {
  try await core.claim(ClaimRequest(limit: limit, names: ["Note": .max], now: .seconds(10)))
    .tasks.map(\.lease)
}

func claimAll(_ core: JSONFileCore) async throws -> [Lease] { try await claim(core, .max) }

func cancelAll(_ core: JSONFileCore) async throws {
  let tasks = core.read { $0.tasks(matching: TaskFilter(), after: nil, limit: .max) }
  _ = try await core.apply(
    tasks.map { .cancel(.unclaimed($0.id), at: .seconds(1), retains: false) },
    .durable
  )
}
