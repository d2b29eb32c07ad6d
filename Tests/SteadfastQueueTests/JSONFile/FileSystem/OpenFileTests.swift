import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

@Suite struct OpenFileTests {
  @Test func `a flush throws the system's error for a file that can't be flushed`() throws {
    var ends: [Int32] = [-1, -1]
    try #require(unsafe pipe(&ends) == 0)
    defer { Foundation.close(ends[0]) }
    // `OpenFile` closes the write end of the pipe.
    let file = OpenFile(ends[1], JSONFileStore.Options(), hasOtherNames: false)
    #expect(throws: SystemCallError.self) { try file.synchronize() }
  }

  @Test func `child processes don't inherit the file and its lock file`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: url)
      try await store.open()
      for path in [url.path, url.path + ".lock"] {
        let descriptors = try descriptors(ofFileAt: path)
        #expect(!descriptors.isEmpty)
        for descriptor in descriptors {
          #expect(fcntl(descriptor, F_GETFD) & FD_CLOEXEC != 0)
        }
      }
      try await store.close()
    }
  }

  private func descriptors(ofFileAt path: String) throws -> [Int32] {
    var file = stat()
    try #require(unsafe stat(path, &file) == 0)
    let all = try FileManager.default.contentsOfDirectory(atPath: "/dev/fd").compactMap(Int32.init)
    return all.filter { descriptor in
      var other = stat()
      return unsafe fstat(descriptor, &other) == 0 && other.st_ino == file.st_ino
        && other.st_dev == file.st_dev
    }
  }
}
