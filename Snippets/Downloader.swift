//! Downloads many large files, five at a time, and goes on where it stopped.
//!
//! `swift run Downloader FOLDER URL…` downloads files, shows a bar for each, and reads commands:
//! `p` pauses all, `r` resumes them, `c N` cancels the download with the number N, `q` stops.
//! Start it again after it was stopped or killed, also without URLs: it goes on from the last
//! checkpoint of each file.

import Foundation
import SteadfastQueue
import Synchronization

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

// snippet.payload
struct Download: TaskPayload {
  var url: URL
  var path: String

  // A file is downloaded once.
  var uniqueKey: String? { path }
  var options: TaskOptions { TaskOptions(maxRetries: .alwaysRetry) }
}

/// How far a download has come.
struct Place: Codable, Sendable {
  var offset = 0
  /// The version of the file on the server, so that no two are mixed.
  var version: String?
}
// snippet.end

// snippet.handler
func perform(_ download: Download, _ context: TaskContext) async throws {
  let partial = download.path + ".partial"
  var place = try await context.checkpoint(Place.self) ?? Place()
  let file = try PartialFile(partial, length: &place.offset)
  defer { file.close() }
  let response = try await Transfer.begin(download.url, from: place)
  if !response.isRest {
    // The server sends the file from its beginning.
    place = Place()
    try file.cutOff(at: 0)
  }
  place.version = response.version
  for try await chunk in response.chunks {
    try file.append(chunk)
    place.offset += chunk.count
    // Stored once a second. If the attempt was cancelled, this throws.
    try await context.save(place)
    if let length = response.length {
      let part = Double(place.offset) / Double(max(1, length))
      context.report(progress: part)
    }
  }
  guard response.length.map({ $0 == place.offset }) ?? true else {
    throw URLError(.networkConnectionLost)
  }
  try file.synchronize()
  try? FileManager.default.removeItem(atPath: download.path)
  try FileManager.default.moveItem(atPath: partial, toPath: download.path)
}
// snippet.end

// MARK: - The file

/// A file that is written at its end.
struct PartialFile {
  private let handle: FileHandle

  /// Opens the file, and cuts off what the last checkpoint does not know of.
  init(_ path: String, length: inout Int) throws {
    if !FileManager.default.fileExists(atPath: path) {
      try Data().write(to: URL(filePath: path))
    }
    handle = try FileHandle(forUpdating: URL(filePath: path))
    // After a power cut, the file may be shorter than the checkpoint says.
    length = min(length, Int(try handle.seekToEnd()))
    try cutOff(at: length)
  }

  func cutOff(at offset: Int) throws {
    try handle.truncate(atOffset: UInt64(offset))
    try handle.seek(toOffset: UInt64(offset))
  }

  func append(_ chunk: Data) throws { try handle.write(contentsOf: chunk) }
  func synchronize() throws { try handle.synchronize() }
  func close() { try? handle.close() }
}

// MARK: - The transfer

/// A request whose answer is read while it comes.
final class Transfer: NSObject, URLSessionDataDelegate {
  /// The beginning of an answer.
  struct Response: Sendable {
    /// Whether it is what follows the offset, and not the whole file.
    let isRest: Bool
    /// The length of the whole file, if the server says it.
    let length: Int?
    let version: String?
    let chunks: AsyncThrowingStream<Data, any Error>
  }

  private struct State {
    var waiting: CheckedContinuation<Response, any Error>?
    var chunks: AsyncThrowingStream<Data, any Error>.Continuation?
  }

  private let offset: Int
  private let state = Mutex(State())

  private init(offset: Int) { self.offset = offset }

  /// Sends a request, and returns when the answer begins.
  static func begin(_ url: URL, from place: Place) async throws -> Response {
    var request = URLRequest(url: url, timeoutInterval: 30)
    if place.offset > 0, let version = place.version {
      request.setValue("bytes=\(place.offset)-", forHTTPHeaderField: "Range")
      request.setValue(version, forHTTPHeaderField: "If-Range")
    }
    let transfer = Transfer(offset: place.offset)
    let session = URLSession(
      configuration: .ephemeral,
      delegate: transfer,
      delegateQueue: nil
    )
    let task = session.dataTask(with: request)
    // The session keeps its delegate until the task has ended.
    session.finishTasksAndInvalidate()
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        transfer.state.withLock { $0.waiting = continuation }
        task.resume()
      }
    } onCancel: {
      task.cancel()
    }
  }

  func urlSession(
    _ session: URLSession,
    dataTask: URLSessionDataTask,
    didReceive response: URLResponse,
    completionHandler:
      @escaping @Sendable (URLSession.ResponseDisposition) ->
      Void
  ) {
    guard let response = response as? HTTPURLResponse,
      [200, 206].contains(response.statusCode)
    else {
      completionHandler(.cancel)
      return fail(URLError(.badServerResponse))
    }
    let isRest = response.statusCode == 206
    let rest =
      response.value(forHTTPHeaderField: "Content-Length").flatMap { Int($0) }
    let (chunks, continuation) = AsyncThrowingStream<Data, any Error>.makeStream()
    continuation.onTermination = { end in
      if case .cancelled = end { dataTask.cancel() }
    }
    let begun = Response(
      isRest: isRest,
      length: rest.map { isRest ? $0 + offset : $0 },
      version: response.value(forHTTPHeaderField: "ETag"),
      chunks: chunks
    )
    let waiting = state.withLock { state in
      state.chunks = continuation
      return state.waiting.take()
    }
    waiting?.resume(returning: begun)
    completionHandler(.allow)
  }

  func urlSession(
    _ session: URLSession,
    dataTask: URLSessionDataTask,
    didReceive data: Data
  ) {
    _ = state.withLock(\.chunks)?.yield(data)
  }

  func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    didCompleteWithError error: (any Error)?
  ) {
    if let error { fail(error) } else { state.withLock(\.chunks)?.finish() }
  }

  private func fail(_ error: any Error) {
    let (waiting, chunks) = state.withLock { ($0.waiting.take(), $0.chunks) }
    waiting?.resume(throwing: error)
    chunks?.finish(throwing: error)
  }
}

// MARK: - The terminal

/// The bars of all downloads, drawn again where they stand.
actor Bars {
  private var lines: [(id: TaskID, text: String)] = []
  private var drawnCount = 0
  private let isTerminal = isatty(STDOUT_FILENO) == 1

  func number(of id: TaskID) -> Int {
    if let index = lines.firstIndex(where: { $0.id == id }) { return index + 1 }
    lines.append((id, ""))
    return lines.count
  }

  func task(numbered number: Int) -> TaskID? {
    lines.indices.contains(number - 1) ? lines[number - 1].id : nil
  }

  func show(_ id: TaskID, _ text: String) {
    let number = number(of: id)
    lines[number - 1].text = text
    if isTerminal { draw() } else { print(number, text) }
  }

  func show(_ id: TaskID, fraction: Double) {
    guard isTerminal else { return }
    let width = 40
    let filled = Int(fraction * Double(width))
    let bar =
      String(repeating: "█", count: filled)
      + String(repeating: "░", count: width - filled)
    show(id, "\(bar) \(Int(fraction * 100)) %")
  }

  private func draw() {
    var text = drawnCount > 0 ? "\u{1B}[\(drawnCount)A" : ""
    for (index, line) in lines.enumerated() {
      text += "\u{1B}[2K\(index + 1). \(line.text)\n"
    }
    drawnCount = lines.count
    FileHandle.standardOutput.write(Data(text.utf8))
  }
}

/// The lines that a person types.
func typedLines() -> AsyncStream<String> {
  AsyncStream { continuation in
    // `readLine()` blocks, so it has a thread of its own.
    Thread.detachNewThread {
      while let line = readLine() { continuation.yield(line) }
      continuation.finish()
    }
  }
}

// MARK: - The program

func follow(_ events: TaskEvents, _ bars: Bars) async {
  for await event in events {
    switch event {
    case .started(let task):
      let name = try? task.payload(as: Download.self).path
      await bars.show(task.id, "begins: \(name ?? "")")
    case .progressed(let task, let fraction):
      await bars.show(task.id, fraction: fraction)
    case .failed(let task, let reason, _, _):
      await bars.show(task.id, "waits for a retry: \(reason.prefix(60))")
    case .succeeded(let task, _): await bars.show(task.id, "done")
    case .abandoned(let task, let reason, _): await bars.show(task.id, reason)
    case .cancelled(let id): await bars.show(id, "cancelled")
    default: break
    }
  }
}

func carryOut(_ queue: TaskQueue, _ bars: Bars) async throws {
  for await line in typedLines() {
    let words = line.split(separator: " ")
    switch words.first {
    case "p":
      // Attempts under way stop at their next checkpoint.
      for task in try await queue.tasks(matching: .unfinished) {
        try await queue.pause(task.id)
      }
    case "r":
      for task in try await queue.tasks(matching: TaskFilter(states: [.paused])) {
        try await queue.resume(task.id)
      }
    case "c":
      let number = words.dropFirst().first.flatMap { Int($0) } ?? 0
      if let id = await bars.task(numbered: number) { try await queue.cancel(id) }
    case "q":
      // What is cut short goes on at its checkpoint the next time.
      await queue.shutDown(within: .zero)
      return
    default: print("p: pause, r: resume, c N: cancel, q: quit")
    }
  }
}

func download(_ urls: [URL], to folder: URL) async throws {
  try FileManager.default.createDirectory(
    at: folder,
    withIntermediateDirectories: true
  )
  let queue = TaskQueue(
    persistence: JSONFileStore(at: folder.appending(path: "downloads.jsonl")),
    configuration: TaskQueueConfiguration(
      maxConcurrentTasks: 5,
      backoff: .exponential(from: .milliseconds(200)).capped(at: .seconds(30)),
      maxInterruptions: .alwaysRetry
    )
  )
  await queue.register(Download.self) { try await perform($0, $1) }
  for url in urls {
    let path = folder.appending(path: url.lastPathComponent).path
    guard !FileManager.default.fileExists(atPath: path) else { continue }
    try await queue.enqueue(Download(url: url, path: path))
  }
  let bars = Bars()
  let events = queue.events
  try await withThrowingTaskGroup(of: Void.self) { group in
    group.addTask { try await queue.run() }
    group.addTask { await follow(events, bars) }
    let commands = Task { try await carryOut(queue, bars) }
    do {
      repeat {
        try await Task.sleep(for: .milliseconds(100))
        try await queue.waitUntilIdle()
      } while try await queue.count(matching: .unfinished) > 0
    } catch let error as TaskQueueError where error.code == .shutDown {
      // A person has typed q.
    }
    await queue.shutDown()
    commands.cancel()
    try await group.waitForAll()
  }
}

let arguments = CommandLine.arguments.dropFirst()
if let folder = arguments.first {
  let urls = arguments.dropFirst().compactMap { URL(string: $0) }
  try await download(urls, to: URL(filePath: folder))
} else {
  print("usage: Downloader FOLDER URL…")
}
