extension String {
  /// Returns the text with each of these parts replaced by another one.
  ///
  /// It is a mistake in the program if a part does not occur.
  package func editing(_ edits: [(part: String, replacement: String)]) -> String {
    edits.reduce(self) { text, edit in
      assert(text.contains(edit.part), "the text has no part '\(edit.part)'")
      return text.replacing(edit.part, with: edit.replacement)
    }
  }
}
