#if SQLite
import Synchronization

/// SQLite's words for the statements of both databases, which are written in PostgreSQL's SQL.
///
/// `TaskDatabase` explains the comments in these statements. SQLite has no arrays: a list of IDs is
/// one ID after the other or, where a statement needs all of them, one blob. A list of strings is a
/// JSON array, and `jsonb` is the text of a JSON object.
enum Dialect {
  /// A number that is greater than every `seq`.
  ///
  /// SQLite finds the largest `seq` at the end of the table. Without `not indexed`, SQLite would
  /// read a whole index if the statistics said that the table is small.
  static let nextPosition = "(select coalesce(max(seq), 0) + 1 from steadfast_task not indexed)"

  private static let words = [
    ("= any ($1)", "= $1"), ("= any (array(", "in (select * from ("), ("unnest($1)", "$1"),
    ("nextval('steadfast_place')", nextPosition), ("position", "seq"),
    ("greatest(", "max("), ("least(", "min("),
    ("is not distinct from", "is"), ("is distinct from", "is not"),
    ("octet_length(name)", "length(cast(name as blob))"), ("octet_length(", "length("),
    (" for update", ""), (" offset 0", ""), ("/*sqlite", ""), ("*/", ""), ("$", "?"),
  ]

  /// The statements that were adapted before, which all connections share.
  private static let adapted = Mutex<[String: String]>([:])

  /// Returns a statement in SQLite's words.
  static func adapt(_ sql: String) -> String {
    guard sql.contains("$") || sql.contains("/*") else { return sql }
    return adapted.withLock { adapted in
      if let known = adapted[sql] { return known }
      let words = Self.words.reduce(withoutArrays(sql)) { text, word in
        text.replacing(word.0, with: word.1)
      }
      adapted[sql] = words
      return words
    }
  }

  /// Returns a statement without arrays, casts, and what only PostgreSQL reads.
  private static func withoutArrays(_ sql: String) -> String {
    func members(_ list: Substring) -> String { "(select value from json_each(\(list)))" }
    return sql.replacing(/\/\*-\*\/.*?\/\*-\*\//.dotMatchesNewlines(), with: "")
      .replacing(/= any \((\$\d+)::uuid\[\]\)/) { "in \(idsInBlob($0.1))" }
      .replacing(/= any \((\$\d+)::text\[\]\)/) { "in \(members($0.1))" }
      .replacing(/<> all \((\$\d+)::text\[\]\)/) { "not in \(members($0.1))" }
      .replacing(/(\w+) <@ (\$\d+)::text\[\]/) { match in
        "not exists (select 1 from json_each(\(match.1)) where value not in \(members(match.2)))"
      }
      .replacing(/(\w+) && (\$\d+)::text\[\]/) { match in
        "exists (select 1 from json_each(\(match.1)) where value in \(members(match.2)))"
      }
      .replacing(/(\w+) @> (\$\d+)::text::jsonb/) { containment(of: $0.2, inColumn: $0.1) }
      .replacing(/substr\((\w+), length\(queue\) \+ 2\)/) { keyExpression(column: $0.1) }
      .replacing(/::[a-z]+(\[\])?/, with: "")
  }

  /// Returns the condition that the JSON object in a column has all keys and values of another one.
  private static func containment(of object: Substring, inColumn column: Substring) -> String {
    """
    not exists (select 1 from json_each(\(object)) as wanted where not exists (
      select 1 from json_each(\(column)) as found
      where found.key = wanted.key and found.value = wanted.value))
    """
  }

  private static func idsInBlob(_ blob: Substring) -> String {
    """
    (with recursive place (start) as (
        select 1 where length(\(blob)) > 0
        union all
        select start + 16 from place where start + 16 <= length(\(blob))
      )
      select substr(\(blob), start, 16) from place)
    """
  }

  /// Returns the expression for the key in a column without the name of its queue.
  ///
  /// The expression counts bytes, because SQLite stops counting characters at a NUL.
  private static func keyExpression(column: Substring) -> String {
    "cast(substr(cast(\(column) as blob), length(cast(queue as blob)) + 2) as text)"
  }
}
#endif
