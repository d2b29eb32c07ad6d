//! Seals the payloads in a file. The seal here is a stand-in that protects nothing.

import Foundation
import SteadfastQueue

/// A STAND-IN FOR ENCRYPTION, which protects nothing: any reader of the file can undo it.
///
/// Like encryption, it has a key with a number, returns bytes that differ each time, and refuses
/// what was sealed with another key or for another task. A program calls `AES.GCM` of CryptoKit or
/// swift-crypto here. The article "Sealing payloads" shows how.
struct StandIn {
  struct CannotOpen: Error, CustomStringConvertible {
    let description: String
  }

  var keyNumber: UInt8

  func seal(_ payload: Data, authenticating data: Data) throws -> Data {
    let nonce = Data((0..<12).map { _ in UInt8.random(in: 0...255) })
    let envelope = [data.base64EncodedString(), payload.base64EncodedString()]
    return [keyNumber] + nonce + Data(envelope.joined(separator: ".").utf8)
  }

  func open(_ sealed: Data, authenticating data: Data) throws -> Data {
    guard sealed.first == keyNumber else { throw CannotOpen(description: "the key does not fit") }
    let parts = String(decoding: sealed.dropFirst(13), as: UTF8.self).split(separator: ".")
    guard parts.count == 2, Data(base64Encoded: String(parts[0])) == data,
      let payload = Data(base64Encoded: String(parts[1]))
    else { throw CannotOpen(description: "it was changed, or belongs to another task") }
    return payload
  }
}

func queue(sealedWith box: StandIn, at url: URL) -> TaskQueue {
  // snippet.queue
  let seal = PayloadSeal { payload, context in
    try box.seal(payload, authenticating: context.authenticatedData)
  } open: { sealed, context in
    try box.open(sealed, authenticating: context.authenticatedData)
  }
  let store = JSONFileStore(at: url).sealingPayloads(with: seal)
  let queue = TaskQueue(persistence: store)
  // snippet.end
  return queue
}

struct UnknownKey: Error {}

/// The keys of a program, by their numbers.
struct Keys {
  var newestNumber: UInt8

  var newest: StandIn { StandIn(keyNumber: newestNumber) }

  subscript(number: UInt8) -> StandIn? {
    number <= newestNumber ? StandIn(keyNumber: number) : nil
  }
}

func seal(with keys: Keys) -> PayloadSeal {
  @Sendable func encrypt(
    _ payload: Data,
    _ context: PayloadSeal.Context,
    _ key: StandIn
  ) throws -> Data {
    try key.seal(payload, authenticating: context.authenticatedData)
  }
  @Sendable func decrypt(
    _ sealed: Data,
    _ context: PayloadSeal.Context,
    _ key: StandIn
  ) throws -> Data {
    try key.open(Data(sealed), authenticating: context.authenticatedData)
  }
  // snippet.keys
  let seal = PayloadSeal { payload, context in
    let sealed = try encrypt(payload, context, keys.newest)
    return Data([keys.newestNumber]) + sealed
  } open: { sealed, context in
    guard let number = sealed.first, let key = keys[number] else {
      throw UnknownKey()
    }
    return try decrypt(sealed.dropFirst(), context, key)
  }
  // snippet.end
  return seal
}

// snippet.seal
func seal(with box: StandIn) -> PayloadSeal {
  PayloadSeal { payload, context in
    try box.seal(payload, authenticating: context.authenticatedData)
  } open: { sealed, context in
    try box.open(sealed, authenticating: context.authenticatedData)
  }
}
// snippet.end

struct Prescribe: TaskPayload { var medicine: String }

let folder = FileManager.default.temporaryDirectory.appending(path: "SealedPayloads-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "queue.jsonl")

// snippet.use
func withQueue(_ box: StandIn, _ body: (TaskQueue) async throws -> Void)
  async throws
{
  let store = JSONFileStore(at: file).sealingPayloads(
    with: seal(with: box)
  )
  let queue = TaskQueue(persistence: store)
  await queue.register(Prescribe.self) { prescription, _ in
    print(prescription.medicine)
  }
  try await body(queue)
  try await store.close()
}
// snippet.end

try await withQueue(StandIn(keyNumber: 1)) { queue in
  try await queue.enqueue(Prescribe(medicine: "a rare one"))
}
let text = try String(contentsOf: file, encoding: .utf8)
print("as plain text in the file: \(text.contains("a rare one"))")

// With another key the task is parked, and its error says why. With its own key it is performed.
try await withQueue(StandIn(keyNumber: 2)) { queue in
  try await queue.runAvailable()
  for task in try await queue.tasks() { print("\(task.state): \(task.lastError ?? "")") }
}
try await withQueue(StandIn(keyNumber: 1)) { queue in try await queue.runAvailable() }
