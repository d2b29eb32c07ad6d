import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct StandardErrorTests {
  private let pipe = Pipe()
  private var file: Int32 { pipe.fileHandleForWriting.fileDescriptor }

  private func read() throws -> String {
    try pipe.fileHandleForWriting.close()
    let bytes = try pipe.fileHandleForReading.readToEnd() ?? Data()
    return String(decoding: bytes, as: UTF8.self)
  }

  @Test func `a message is written as one line`() throws {
    #expect(StandardError.write("It works.", to: file))
    #expect(try read() == "Steadfast: It works.\n")
  }

  @Test(arguments: ["a", "é", "€", "🎈", "e\u{301}"])
  func `a long message is cut between Unicode scalars`(character: String) throws {
    #expect(StandardError.write(String(repeating: character, count: 9_000), to: file))
    let text = try read()
    #expect(text.utf8.count <= StandardError.maxLength)
    #expect(text.utf8.count > StandardError.maxLength - 12)
    #expect(text.hasPrefix("Steadfast: \(character)\(character)") && text.hasSuffix("…\n"))
    #expect(!text.unicodeScalars.contains("\u{FFFD}"))
  }

  @Test func `writing to a full pipe fails instead of waiting`() throws {
    var count = 0
    while StandardError.write(String(repeating: "x", count: 400), to: file) { count += 1 }
    #expect(count > 0)
    #expect(try read().utf8.count == count * 412)
  }

  @Test func `writing to a pipe without a reader raises no signal`() throws {
    try pipe.fileHandleForReading.close()
    #expect(!StandardError.write("Is anybody there?", to: file))
  }

  @Test func `writing to a closed file fails`() {
    #expect(!StandardError.write("Is anybody there?", to: -1))
  }
}
