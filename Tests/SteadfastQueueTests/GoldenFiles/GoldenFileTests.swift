import Foundation
import Testing

@testable import SteadfastQueue

/// What was written once is read for ever, and written so for as long as the version is the same.
///
/// The tasks beside each file are also what `Tests/EndToEnd/read_queue_file.py` finds, which knows
/// nothing but the article "The file format".
@Suite struct GoldenFileTests {
  @Test(arguments: GoldenFile.all)
  func `a file of before is read`(file: GoldenFile) throws {
    let contents = try JournalReader.read(Array(try Data(contentsOf: file.url)))
    #expect(contents.table.brokenInvariants() == [])
    let found = try contents.table.told()
    let json = try JSONSerialization.jsonObject(with: Data(contentsOf: file.tasksURL))
    let expected = try #require(json as? [NSDictionary])
    #expect(found == expected)
  }

  @Test(arguments: GoldenFile.all.filter { $0.write != nil })
  func `what is written now is what was written before`(file: GoldenFile) throws {
    let written = Data(try file.writtenNow())
    guard let data = try? Data(contentsOf: file.url) else {
      try written.write(to: file.url)
      Issue.record("\(file.name) was not there and has been written: check every byte of it")
      return
    }
    #expect(
      String(decoding: written, as: UTF8.self) == String(decoding: data, as: UTF8.self)
        && written == data
    )
  }

  @Test func `every file is known, and every kind of line is in one of them`() throws {
    let folder = try #require(GoldenFile.all.first).url.deletingLastPathComponent()
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    #expect(
      Set(names) == Set(GoldenFile.all.flatMap { [$0.url, $0.tasksURL] }.map(\.lastPathComponent))
    )
    let text = try GoldenFile.all.map {
      String(decoding: try Data(contentsOf: $0.url), as: UTF8.self)
    }
    .joined()
    for kind in [
      "header", "insert", "add", "task", "kept", "compacted", "begin", "succeed", "retry",
      "abandon", "release",
      "park", "cancel", "pause", "resume", "restart", "reschedule", "update", "remove", "extend",
      "unpark", "prune", "rebase", "value", "remember", "suspend", "complete",
      "memory", "interruption", "seal",
    ] {
      #expect(text.contains("\"k\":\"\(kind)\""), "\(kind)")
    }
  }
}
