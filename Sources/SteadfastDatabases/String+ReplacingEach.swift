extension String {
  /// Returns a copy of the string after a series of replacements.
  ///
  /// Each `old` string must occur in the result of the replacements before it.
  package func replacingEach(_ replacements: [(old: String, new: String)]) -> String {
    replacements.reduce(self) { text, replacement in
      assert(text.contains(replacement.old), "the string does not contain '\(replacement.old)'")
      return text.replacing(replacement.old, with: replacement.new)
    }
  }
}
