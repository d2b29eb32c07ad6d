#if SQLite
import Testing

@testable import SteadfastSQLite

/// SQLite's words for the statements that both databases share.
struct DialectTests {
  @Test(arguments: [
    ("select 1 where $1::text is null and $12", "select 1 where ?1 is null and ?12"),
    ("position = nextval('steadfast_place') + $1", "seq = \(Dialect.nextPosition) + ?1"),
    ("least($1, greatest($2, 1))", "min(?1, max(?2, 1))"),
    ("a is distinct from $1 or a is not distinct from $2", "a is not ?1 or a is ?2"),
    ("octet_length(name) + octet_length($1)", "length(cast(name as blob)) + length(?1)"),
    ("where id = $1 for update", "where id = ?1"),
    ("exists (select 1 where a = $1 offset 0)", "exists (select 1 where a = ?1)"),
  ])
  func `words are replaced`(_ shared: String, _ adapted: String) {
    #expect(Dialect.adapt(shared) == adapted)
  }

  @Test(arguments: [
    ("where id = any ($1)", "where id = ?1"),
    ("(select unnest($1::uuid[]) as id)", "(select ?1 as id)"),
    (
      "name = any ($2::text[]) or name <> all ($3::text[])",
      "name in (select value from json_each(?2)) "
        + "or name not in (select value from json_each(?3))"
    ),
    (
      "tags && $1::text[]",
      "exists (select 1 from json_each(tags) where value in (select value from json_each(?1)))"
    ),
    (
      "not conditions <@ $1::text[]",
      "not not exists (select 1 from json_each(conditions) "
        + "where value not in (select value from json_each(?1)))"
    ),
    (
      "metadata @> $1::text::jsonb",
      """
      not exists (select 1 from json_each(?1) as wanted where not exists (
        select 1 from json_each(metadata) as found
        where found.key = wanted.key and found.value = wanted.value))
      """
    ),
    (
      "id = any (array(select id from ended where id = $1))",
      "id in (select * from (select id from ended where id = ?1))"
    ),
  ])
  func `arrays are replaced`(_ shared: String, _ adapted: String) {
    #expect(Dialect.adapt(shared) == adapted)
  }

  @Test func `comments enclose what only one database reads`() {
    let shared = """
      select $1/*-*/::regclass,
        2/*-*/ from a /*sqlite indexed by b */ cross join /*-*/lateral /*-*/c
      """
    #expect(Dialect.adapt(shared) == "select ?1 from a  indexed by b  cross join c")
  }

  @Test func `a statement without numbered parameters and comments stays unchanged`() {
    let statement = "select position from a where b = ?1"
    #expect(Dialect.adapt(statement) == statement)
    #expect(Dialect.adapt("select 1 from a /*sqlite c */") == "select 1 from a  c ")
  }
}
#endif
