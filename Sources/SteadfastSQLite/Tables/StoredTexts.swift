#if SQLite
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Texts as a JSON array, which statements look into.
enum StoredTexts {
  /// Returns the array; `nil` if there are no texts.
  static func text(of texts: some Collection<String>) -> String? {
    texts.isEmpty ? nil : json(of: texts)
  }

  /// Returns the array, without the texts that have a NUL.
  ///
  /// No row has such a text. Some versions of SQLite would find what stands before the NUL.
  static func json(of texts: some Collection<String>) -> String {
    let texts = texts.filter { !$0.hasNUL }
    // Texts can always be encoded.
    guard !texts.isEmpty, let data = try? JSONEncoder().encode(texts) else { return "[]" }
    return String(decoding: data, as: UTF8.self)
  }

  static func read(_ text: String?) throws -> [String] {
    guard let text else { return [] }
    do {
      return try JSONDecoder().decode([String].self, from: Data(text.utf8))
    } catch {
      throw UnreadableRow(column: "tags or conditions")
    }
  }
}

extension StoredKey {
  /// The key without its queue, in SQL.
  ///
  /// It counts bytes, since SQLite's characters end at one that is zero.
  static func key(inColumn column: String) -> String {
    "cast(substr(cast(\(column) as blob), length(cast(queue as blob)) + 2) as text)"
  }
}

extension Statement {
  func texts(_ column: Int32) throws -> [String] {
    try StoredTexts.read(ifAny(column, text))
  }
}
#endif
