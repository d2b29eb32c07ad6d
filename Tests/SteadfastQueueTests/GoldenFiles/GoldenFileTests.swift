import Foundation
import Testing

@testable import SteadfastQueue

/// Files of earlier versions can be read, and the library writes the same bytes as before.
///
/// `Tests/EndToEnd/read_queue_file.py`, which is based only on the article "The file format", also
/// reads these files, and compares the tasks with those that are stored beside each file.
@Suite struct GoldenFileTests {
  @Test(arguments: GoldenFile.all)
  func `a file of an earlier version of the library is read`(file: GoldenFile) throws {
    let contents = try JournalReader.read(Array(try Data(contentsOf: file.url)))
    #expect(contents.table.brokenInvariants() == [])
    let found = try contents.table.contentsForPythonReader()
    let json = try JSONSerialization.jsonObject(with: Data(contentsOf: file.tasksURL))
    let expected = try #require(json as? [NSDictionary])
    #expect(found == expected)
  }

  @Test(arguments: GoldenFile.all.filter { $0.write != nil })
  func `the library writes the same bytes as before`(file: GoldenFile) throws {
    let written = Data(try file.writtenNow())
    guard let data = try? Data(contentsOf: file.url) else {
      try written.write(to: file.url)
      Issue.record("\(file.name) was missing and has been written: check every byte of it")
      return
    }
    #expect(
      String(decoding: written, as: UTF8.self) == String(decoding: data, as: UTF8.self)
        && written == data
    )
  }

  @Test func `every golden file is listed, and every kind of line occurs in a golden file`() throws
  {
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
      "memory", "interruption", "seal", "create", "stored", "edit",
    ] {
      #expect(text.contains("\"k\":\"\(kind)\""), "\(kind)")
    }
  }
}
