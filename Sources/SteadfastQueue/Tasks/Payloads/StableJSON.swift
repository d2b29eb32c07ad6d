#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// JSON with its keys in one order, so that the same value has the same bytes each time.
package enum StableJSON {
  static func makeEncoder() -> JSONEncoder {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return encoder
  }

  package static func encode(_ value: some Encodable) throws -> [UInt8] {
    Array(try makeEncoder().encode(value))
  }
}

extension EncodingError {
  /// The same error without the value and its path, which may show what must not appear in a log.
  var withoutValue: EncodingError {
    guard case .invalidValue(let value, let context) = self else { return self }
    return .invalidValue(
      "a value of the type \(type(of: value))",
      Context(codingPath: [], debugDescription: context.debugDescription)
    )
  }
}
