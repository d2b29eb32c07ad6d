#if PostgreSQL
extension String {
  /// The text with a mark before each of some Unicode scalars, as SQL quotes them.
  ///
  /// A scalar counts even if a combining character follows, which makes another `Character` of it.
  func marking(_ scalars: Set<Unicode.Scalar>, with mark: Unicode.Scalar) -> String {
    var marked = String.UnicodeScalarView()
    for scalar in unicodeScalars {
      if scalars.contains(scalar) { marked.append(mark) }
      marked.append(scalar)
    }
    return String(marked)
  }
}
#endif
