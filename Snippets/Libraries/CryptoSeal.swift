//! Encrypts payloads with AES-GCM. It is compiled where there is CryptoKit.

#if canImport(CryptoKit)
// snippet.seal
import CryptoKit  // or Crypto, of swift-crypto
// snippet.hide
import Foundation
import SteadfastQueue

struct SealingError: Error {}

func readKey() throws -> SymmetricKey { SymmetricKey(size: .bits256) }

let url = FileManager.default.temporaryDirectory.appending(path: "CryptoSeal-\(UUID())")
// snippet.show

// From the keychain, never from the program's text.
let key: SymmetricKey = try readKey()

let seal = PayloadSeal { payload, context in
  let data = context.authenticatedData
  let box = try AES.GCM.seal(payload, using: key, authenticating: data)
  guard let sealed = box.combined else { throw SealingError() }
  return sealed
} open: { sealed, context in
  let box = try AES.GCM.SealedBox(combined: sealed)
  let data = context.authenticatedData
  return try AES.GCM.open(box, using: key, authenticating: data)
}

let store = JSONFileStore(at: url).sealingPayloads(with: seal)
let queue = TaskQueue(persistence: store)
// snippet.end
#else
print("build it for a system with CryptoKit")
#endif
