import Foundation
import Synchronization

@testable import SteadfastQueue

/// A substitute for encryption, without security.
///
/// A sealed payload opens only if it is unchanged, with the same key and for the same task.
final class TestSeal: Sendable {
  struct WrongKey: Error, CustomStringConvertible {
    let description = "the key does not fit"
  }

  struct NoKey: Error {}

  private let keys: Mutex<[UInt8]>
  private let counted = Mutex((seals: 0, opens: 0))

  init(keys: [UInt8] = [0x5A]) { self.keys = Mutex(keys) }

  /// Sets the keys: the first seals payloads, and each of them opens payloads.
  func setKeys(_ keys: UInt8...) { self.keys.withLock { $0 = keys } }

  var sealCount: Int { counted.withLock { $0.seals } }
  var openCount: Int { counted.withLock { $0.opens } }

  var payloadSeal: PayloadSeal {
    PayloadSeal { [self] payload, context in
      counted.withLock { $0.seals += 1 }
      guard let key = keys.withLock(\.first) else { throw NoKey() }
      return Data([key] + Self.tag(payload, context) + payload.map { $0 ^ key })
    } open: { [self] sealed, context in
      counted.withLock { $0.opens += 1 }
      guard let key = sealed.first, keys.withLock({ $0.contains(key) }) else { throw WrongKey() }
      let payload = Data(sealed.dropFirst(5).map { $0 ^ key })
      guard Self.tag(payload, context).elementsEqual(sealed.dropFirst().prefix(4)) else {
        throw WrongKey()
      }
      return payload
    }
  }

  private static func tag(_ payload: Data, _ context: PayloadSeal.Context) -> [UInt8] {
    let sum = CRC32C.checksum((Array(context.authenticatedData) + payload)[...])
    return (0..<4).map { UInt8(truncatingIfNeeded: sum >> (8 * UInt32($0))) }
  }
}
