extension String {
  /// Returns the text with each part replaced.
  ///
  /// Each part must occur in the text.
  package func editing(_ edits: [(part: String, replacement: String)]) -> String {
    edits.reduce(self) { text, edit in
      assert(text.contains(edit.part), "the text has no part '\(edit.part)'")
      return text.replacing(edit.part, with: edit.replacement)
    }
  }
}
