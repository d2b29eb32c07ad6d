import Testing

@testable import SteadfastRetry

@Suite struct HTTPDateTests {
  // The expected values are the output of `date -u -d … +%s`.
  @Test(arguments: [
    ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
    ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
    ("Sun Nov  6 08:49:37 1994", 784_111_777),
    ("Sun Nov 16 08:49:37 1994", 784_975_777),
    ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
    ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
    ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
    ("Fri, 31 Dec 2038 23:59:59 GMT", 2_177_452_799),
    ("Monday, 31-Dec-90 23:59:59 GMT", 3_818_447_999),
    ("Tuesday, 01-Jan-91 00:00:00 GMT", 662_688_000),
    ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
    ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
    ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
  ])
  func `all three date formats are parsed`(text: String, seconds: Int) {
    #expect(HTTPDate(text)?.secondsSince1970 == Int64(seconds))
  }

  @Test(arguments: [
    "", " ", "GMT", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 CET",
    "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 31 Nov 1994 08:49:37 GMT",
    "Tue, 29 Feb 2100 00:00:00 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 19941 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
    "Sun, 6 Nov 1994 8:49:37 GMT", "1994-11-06T08:49:37Z", "784111777",
    "Sun, 06 Nov 1994 08:49:37 GMT GMT",
    "Su, 06 Nov 1994 08:49:37 GMT", "Sun, 999999999999999999999 Nov 1994 08:49:37 GMT",
  ])
  func `a string in any other format is rejected`(text: String) {
    #expect(HTTPDate(text) == nil)
  }
}
