import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// The effects of `JSONFileStore.Options` on real files.
@Suite struct OptionsTests {
  private func mode(of file: URL) throws -> Int? {
    let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
    return (attributes[.posixPermissions] as? NSNumber)?.intValue
  }

  private func modes(of file: URL) throws -> [Int?] {
    [try mode(of: file), try mode(of: URL(filePath: file.path + ".lock"))]
  }

  // MARK: Limits

  @Test(arguments: [
    ("maxTaskSize of 0", JSONFileStore.Options(maxTaskSize: 0)),
    ("maxTaskSize of -1", JSONFileStore.Options(maxTaskSize: -1)),
    ("maxFileSize of -4096", JSONFileStore.Options(maxFileSize: -4096)),
  ])
  func `an impossible limit is refused before a file is created`(
    name: String,
    options: JSONFileStore.Options
  ) async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"), options: options)
      for _ in 0..<2 {
        let error = await #expect(throws: JSONFileError.self) {
          try await TaskQueue(persistence: store).open()
        }
        #expect(error?.code == .invalidOptions)
        #expect(error?.message.contains("\(name) bytes; give 1 or more") == true)
      }
      try await store.close()
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == [])
    }
  }

  // MARK: Permissions

  @Test(arguments: [
    (JSONFileStore.Permissions.owner, 0o600), (.groupMayRead, 0o640), (.group, 0o660),
  ])
  func `the files get the chosen permissions, whatever the umask`(
    permissions: JSONFileStore.Permissions,
    mode: Int
  ) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(permissions: permissions)
      try await JSONFileStore(at: file, options: options).open()
      #expect(try modes(of: file) == [mode, mode])
    }
  }

  @Test func `opening an existing file gives the file the chosen permissions too`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      for (permissions, mode) in [
        (JSONFileStore.Permissions.group, 0o660), (.owner, 0o600), (.groupMayRead, 0o640),
      ] {
        let options = JSONFileStore.Options(permissions: permissions)
        let store = JSONFileStore(at: file, options: options)
        try await store.open()
        #expect(try modes(of: file) == [mode, mode])
        try await store.close()
      }
    }
  }

  @Test func `a file that every user may write is refused, whatever the options`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try Data().write(to: file)
      try FileManager.default.setAttributes([.posixPermissions: 0o662], ofItemAtPath: file.path)
      let options = JSONFileStore.Options(permissions: .group)
      let error = await #expect(throws: JSONFileError.self) {
        try await JSONFileStore(at: file, options: options).open()
      }
      #expect(error?.code == .unsafeFile)
      #expect(error?.message.contains("chmod o-w") == true)
      #expect(try mode(of: file) == 0o662)
    }
  }

  @Test func `a compacted file has the chosen permissions too`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(maxFileSize: 20_000, permissions: .group)
      let store = JSONFileStore(at: file, options: options)
      let queue = TaskQueue(persistence: store)
      await queue.register(Note.self) { _, _ in }
      while try await store.statistics().lastCompaction == nil {
        try await queue.enqueue(contentsOf: (0..<10).map { Note("\($0)") })
        try await queue.runAvailable()
      }
      try await store.close()
      #expect(try modes(of: file) == [0o660, 0o660])
    }
  }

  @Test(arguments: [
    JSONFileStore.Protection.whileUnlocked, .unlessOpen, .untilFirstUnlock, .always,
  ])
  func `every platform accepts a protection class, and the queue works`(
    protection: JSONFileStore.Protection
  ) async throws {
    try await withTemporaryFolder { folder in
      let options = JSONFileStore.Options(protection: protection)
      let queue = TaskQueue(
        persistence: .jsonFile(at: folder.appending(path: "queue.jsonl"), options: options)
      )
      try await queue.enqueue(Note("a"))
      #expect(try await queue.count == 1)
    }
  }

  // MARK: Sizes

  @Test
  func `a new task larger than the limit is refused, but a longer error message is stored`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let options = JSONFileStore.Options(maxTaskSize: 1000)
      let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"), options: options)
      let queue = TaskQueue(persistence: store)
      let text = String(repeating: "x", count: 2000)
      let error = await #expect(throws: JSONFileError.self) {
        try await queue.enqueue(contentsOf: [Note("short"), Note(text)])
      }
      #expect(error?.code == .taskTooLarge)
      #expect(error?.message.contains("the store's maxTaskSize is 1000") == true)
      #expect(try await queue.count == 0)
      await queue.register(Note.self) { _, _ in throw TaskAbandoned(text) }
      try await queue.enqueue(Note("short"))
      try await queue.runAvailable()
      #expect(try await queue.tasks(matching: .deadLetters).map(\.lastError) == [text])
    }
  }

  @Test func `a queue whose file is full refuses tasks until it has drained`() async throws {
    try await withTemporaryFolder { folder in
      let options = JSONFileStore.Options(maxFileSize: 10_000)
      let queue = TaskQueue(
        persistence: .jsonFile(at: folder.appending(path: "queue.jsonl"), options: options)
      )
      await queue.register(Note.self) { _, _ in }
      for _ in 1...3 {
        let count = try await fill(queue)
        #expect(count > 10)
        #expect(try await queue.runAvailable() == count)
      }
    }
  }

  /// Adds tasks until the file is full.
  ///
  /// - Returns: The number of tasks that fit.
  private func fill(_ queue: TaskQueue) async throws -> Int {
    var count = 0
    do {
      while true {
        try await queue.enqueue(Note("\(count)"))
        count += 1
      }
    } catch let error as JSONFileError where error.code == .fileFull {
      return count
    }
  }

  // MARK: Nesting

  /// Arrays that are nested to a given depth.
  private indirect enum Nest: Codable, Sendable {
    case core
    case nest(Nest)

    init(from decoder: any Decoder) throws {
      var container = try decoder.unkeyedContainer()
      self = container.isAtEnd ? .core : .nest(try container.decode(Nest.self))
    }

    func encode(to encoder: any Encoder) throws {
      var container = encoder.unkeyedContainer()
      if case .nest(let inner) = self { try container.encode(inner) }
    }

    init(depth: Int) { self = depth == 1 ? .core : .nest(Nest(depth: depth - 1)) }

    var depth: Int {
      switch self {
      case .core: 1
      case .nest(let inner): 1 + inner.depth
      }
    }
  }

  private struct Deep: TaskPayload {
    var nest: Nest
  }

  @Test(arguments: [(62, "payload"), (63, "payload"), (64, "data"), (100, "data")])
  func `a payload nested deeper than a reader follows is stored as data, and performed`(
    depth: Int,
    field: String
  ) async throws {
    let log = Log<Int>()
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let first = JSONFileStore(at: file)
      // The object that contains the arrays adds one level.
      try await TaskQueue(persistence: first).enqueue(Deep(nest: Nest(depth: depth)))
      try await first.close()
      #expect(try String(contentsOf: file, encoding: .utf8).contains("\"\(field)\":"))
      let queue = TaskQueue(persistence: .jsonFile(at: file))
      await queue.register(Deep.self) { deep, _ in log.add(deep.nest.depth) }
      try await queue.runAvailable()
    }
    #expect(log.entries == [depth])
  }
}
