/// The text of a statement, as a key for prepared statements.
///
/// The hash is the length, because few statements have the same length, and hashing the whole text
/// takes longer than running a small statement. Equal texts usually share their storage, and are
/// then compared in no time.
package struct StatementText: Hashable {
  private let text: String

  package init(_ text: String) { self.text = text }

  package func hash(into hasher: inout Hasher) { hasher.combine(text.utf8.count) }
}
