/// Tells which of some words stands in a file, without making a string of it.
///
/// A word is compared as one number. The table is open-addressed, and at most half full.
struct WordTable<Word: Sendable>: Sendable {
  private var slots: [(word: PackedWord, meaning: Word)?]

  /// - Parameter words: each once, at most half as many as there are slots.
  init(_ words: [(text: String, meaning: Word)]) {
    slots = Array(repeating: nil, count: 1 << PackedWord.hashBits)
    precondition(words.count * 2 <= slots.count, "the table would be too full")
    for (text, meaning) in words {
      guard let word = PackedWord(text.utf8) else { preconditionFailure("'\(text)' is no word") }
      var slot = word.hash
      while slots[slot] != nil { slot = (slot + 1) % slots.count }
      slots[slot] = (word, meaning)
    }
  }

  subscript(word: PackedWord) -> Word? {
    var slot = word.hash
    while let found = slots[slot] {
      if found.word == word { return found.meaning }
      slot = (slot + 1) % slots.count
    }
    return nil
  }
}

/// Up to 16 printable ASCII characters, none of which is escaped in JSON.
struct PackedWord: Equatable, Sendable {
  static var maxLength: Int { 16 }
  static var hashBits: Int { 7 }

  private var bits: UInt128 = 0

  init() {}

  /// `nil` if the text is something else.
  init?(_ text: some Collection<UInt8>) {
    guard text.count <= Self.maxLength else { return nil }
    for byte in text {
      guard append(byte) else { return nil }
    }
  }

  /// Whether the byte can stand in a word; the caller sees to its length.
  mutating func append(_ byte: UInt8) -> Bool {
    guard byte >= 0x20, byte < 0x80, byte != UInt8(ascii: "\\") else { return false }
    bits = bits << 8 | UInt128(byte)
    return true
  }

  /// Its highest bits, spread by Knuth's multiplicative hashing ("The Art of Computer Programming",
  /// section 6.4).
  var hash: Int {
    let folded = UInt64(truncatingIfNeeded: bits ^ bits >> 64)
    return Int((folded &* 0x9E37_79B9_7F4A_7C15) >> UInt64(64 - Self.hashBits))
  }
}
