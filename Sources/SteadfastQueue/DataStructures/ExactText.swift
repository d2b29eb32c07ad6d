/// A text that equals another one only if the UTF-8 bytes of both are the same.
///
/// Swift takes "\u{e9}" and "e\u{301}" for equal, as people do, and databases don't.
package struct ExactText: Hashable, Sendable {
  package let text: String

  package init(_ text: String) { self.text = text }

  package static func == (left: ExactText, right: ExactText) -> Bool {
    left.text.isExactly(right.text)
  }

  /// Hashes the text as Swift does, which gives texts with the same bytes the same hash.
  package func hash(into hasher: inout Hasher) { hasher.combine(text) }
}

extension String {
  /// Returns whether the UTF-8 bytes of two texts are the same.
  package func isExactly(_ other: String) -> Bool {
    // Texts with the same bytes are equal. It takes much less time to see that texts are not, or
    // that they are one.
    guard self == other else { return false }
    let isSame = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      unsafe other.utf8.withContiguousStorageIfAvailable { others in
        // A loop over indices, because `elementsEqual` takes seven times as long.
        bytes.count == others.count
          && bytes.indices.allSatisfy { unsafe bytes[$0] == others[$0] }
      }
    }
    // A text from Objective-C has no contiguous bytes.
    return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
  }
}

/// A text with which many others are compared.
struct ComparedText: Sendable {
  let text: String
  private let isASCII: Bool

  init(_ text: String) {
    self.text = text
    isASCII = text.utf8.allSatisfy { $0 < 0x80 }
  }

  /// Returns whether the UTF-8 bytes of both are the same, sooner than `String.isExactly(_:)`.
  func isExactly(_ other: String) -> Bool {
    // A scalar that Swift takes for an ASCII one has more bytes than that.
    isASCII
      ? text == other && text.utf8.count == other.utf8.count : text.isExactly(other)
  }
}

extension Set<String> {
  /// Returns whether a text with the same UTF-8 bytes is in the set.
  package func containsExactly(_ text: String) -> Bool {
    firstIndex(of: text).map { self[$0].isExactly(text) } ?? false
  }
}

extension Dictionary where Key == String {
  /// The value for a text with the same UTF-8 bytes.
  package subscript(exactly text: String) -> Value? {
    guard let index = index(forKey: text) else { return nil }
    let (key, value) = self[index]
    return key.isExactly(text) ? value : nil
  }
}
