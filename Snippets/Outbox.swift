//! Delivers the files of a folder, over HTTP or into another folder, and survives being killed.
//!
//! Each file becomes a durable task, which is tried again until the file has arrived. Stop the
//! program at any moment, even with SIGKILL, and start it again with the same queue file: it goes
//! on with what is left and adds nothing twice. A file that has changed is delivered again, and a
//! file that was abandoned is tried again. All regular files are delivered, hidden ones too. Links
//! are not followed.
//!
//! ```
//! swift run Outbox
//! swift run Outbox --from photos --to https://example.com/inbox --queue photos.jsonl
//! ```
//!
//! Without arguments it copies the package's own sources into a temporary folder, with a carrier
//! that fails a third of the time. It exits with 0 when all is delivered, with 1 if a file was
//! abandoned, and with 2 if it can't do its work.

import Dispatch
import Foundation
import SteadfastQueue
import Synchronization

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

// snippet.task
/// A file to deliver.
struct Delivery: TaskPayload {
  var file: String
  var target: URL
  var size: Int
  var modified: Date

  /// The same for the same version of a file, so that it goes there once.
  var uniqueKey: String? {
    "\(target.absoluteString) \(size) \(modified.timeIntervalSince1970)"
  }

  var options: TaskOptions {
    TaskOptions(
      maxRetries: .alwaysRetry,
      uniqueFor: .seconds(3650 * 86_400)
    )
  }
}
// snippet.end

/// An error in words, and whether trying again can help.
struct Problem: RetryAwareError, CustomStringConvertible {
  let description: String
  let retryDecision: RetryDecision

  init(_ description: String, _ decision: RetryDecision = .retry) {
    self.description = description
    retryDecision = decision
  }
}

// MARK: - Carriers

/// A way to get a file to its target.
protocol Carrier: Sendable {
  /// Carries a file to its target, and throws if it does not arrive.
  ///
  /// The identity is the same for each attempt.
  func carry(_ file: URL, to target: URL, for id: TaskID) async throws
}

extension Carrier {
  /// Carries a file, and throws errors in words.
  func deliver(_ delivery: Delivery, for id: TaskID) async throws {
    let file = delivery.file
    guard FileManager.default.fileExists(atPath: file) else {
      throw Problem("the file is not there any more (\(file))", .stop)
    }
    guard FileManager.default.isReadableFile(atPath: file) else {
      throw Problem("this user may not read the file (\(file))", .stop)
    }
    do {
      try await carry(URL(fileURLWithPath: file), to: delivery.target, for: id)
    } catch let problem as Problem {
      throw Problem("\(problem) (\(file))", problem.retryDecision)
    } catch URLError.timedOut {
      throw Problem("the server did not answer in time (\(file))")
    } catch {
      throw Problem("\(error.localizedDescription) (\(file))")
    }
  }
}

// snippet.carrier
/// Uploads files with PUT.
struct HTTPCarrier: Carrier {
  let session: URLSession

  func carry(_ file: URL, to target: URL, for id: TaskID) async throws {
    var request = URLRequest(url: target)
    request.httpMethod = "PUT"
    request.setValue(id.description, forHTTPHeaderField: "Idempotency-Key")
    let (_, response) = try await session.upload(
      for: request,
      fromFile: file
    )
    guard let answer = response as? HTTPURLResponse else {
      throw URLError(.badServerResponse)
    }
    let reason = HTTPURLResponse.localizedString(
      forStatusCode: answer.statusCode
    ).lowercased()
    let problem = "the server answers \(answer.statusCode) \(reason)"
    switch answer.statusCode {
    case 200..<300: return
    case 408, 429, 500...:
      throw Problem(
        problem,
        answer.retryDelay.map { .retry(after: $0) } ?? .retry
      )
    default: throw Problem(problem, .stop)
    }
  }
}
// snippet.end

extension HTTPCarrier {
  init(maxConnections: Int, timeout: Int) {
    let configuration = URLSessionConfiguration.ephemeral
    configuration.httpMaximumConnectionsPerHost = maxConnections
    configuration.timeoutIntervalForRequest = TimeInterval(timeout)
    session = URLSession(
      configuration: configuration,
      delegate: NoRedirection(),
      delegateQueue: nil
    )
  }
}

/// Refuses redirections, because a redirected PUT may lose its file.
final class NoRedirection: NSObject, URLSessionTaskDelegate {
  func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    willPerformHTTPRedirection response: HTTPURLResponse,
    newRequest request: URLRequest,
    completionHandler: @escaping (URLRequest?) -> Void
  ) { completionHandler(nil) }
}

extension HTTPURLResponse {
  /// The delay in `Retry-After`: a number of seconds, or a date (RFC 9110, section 10.2.3).
  var retryDelay: Duration? {
    guard let text = value(forHTTPHeaderField: "Retry-After") else { return nil }
    if let seconds = Int(text) { return .seconds(seconds) }
    let parser = DateFormatter()
    parser.locale = Locale(identifier: "en_US_POSIX")
    parser.dateFormat = "EEE, dd MMM yyyy HH:mm:ss zzz"
    return parser.date(from: text).map { .seconds($0.timeIntervalSinceNow) }
  }
}

/// Copies files into a folder, so that each file appears there whole or not at all.
struct FolderCarrier: Carrier {
  func carry(_ file: URL, to target: URL, for id: TaskID) async throws {
    let folder = target.deletingLastPathComponent()
    let partial = folder.appending(path: ".\(id).partial")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    // A process that was killed may have left a partial copy.
    try? FileManager.default.removeItem(at: partial)
    try FileManager.default.copyItem(at: file, to: partial)
    // The queue stores for good that the file has arrived, so the file must outlast a power cut.
    try FileHandle(forReadingFrom: partial).synchronize()
    guard rename(partial.path, target.path) == 0 else {
      throw Problem("\(target.path) can't be replaced: \(String(cString: strerror(errno)))")
    }
    try FileHandle(forReadingFrom: folder).synchronize()
  }
}

/// Waits a little, and fails in a third of the cases before another carrier gets the file.
final class UnreliableCarrier: Carrier {
  private let base: any Carrier
  private let seed = Mutex<UInt64>(42)

  init(_ base: any Carrier) { self.base = base }

  func carry(_ file: URL, to target: URL, for id: TaskID) async throws {
    try await Task.sleep(for: .milliseconds(20 + roll() % 100))
    let mishaps = ["the van broke down", "the bridge was up", "it fell off the lorry"]
    if roll() % 3 == 0 { throw Problem(mishaps[roll() % mishaps.count]) }
    try await base.carry(file, to: target, for: id)
  }

  private func roll() -> Int {
    seed.withLock { seed in
      // The constants of Knuth's MMIX; the high bits are the random ones.
      seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(seed >> 33)
    }
  }
}

// MARK: - The command line

/// The arguments of the program.
struct Options {
  static let usage = """
    usage: Outbox [--from FOLDER --to URL-or-FOLDER] [--queue FILE] [--concurrency N]
                  [--timeout SECONDS]
      --from         the folder whose files to deliver
      --to           an http or https address that takes PUT requests, or a folder
      --queue        the file that remembers what is delivered; by default outbox.jsonl
      --concurrency  how many files are on their way at a time; by default 4
      --timeout      the silence of a server after which to try again; by default 30
    Without --from and --to it delivers the package's own sources, to show how it works.
    """

  let source: URL
  let target: URL
  let queueFile: URL
  let concurrency: Int
  let carrier: any Carrier

  init(_ arguments: some Sequence<String>) throws {
    let values = try Self.values(of: arguments)
    concurrency = try Self.number(values, "--concurrency", 1...1000) ?? 4
    let timeout = try Self.number(values, "--timeout", 1...3600) ?? 30
    switch (values["--from"], values["--to"]) {
    case (let from?, let to?):
      source = URL(fileURLWithPath: from).standardizedFileURL
      target = try Self.target(to)
      queueFile = URL(fileURLWithPath: values["--queue"] ?? "outbox.jsonl").standardizedFileURL
      carrier =
        target.isFileURL
        ? FolderCarrier() : HTTPCarrier(maxConnections: concurrency, timeout: timeout)
    case (nil, nil):
      let folder = FileManager.default.temporaryDirectory.appending(path: "Outbox-\(UUID())")
      source = URL(fileURLWithPath: "Sources").standardizedFileURL
      target = folder.appending(path: "delivered")
      queueFile = URL(fileURLWithPath: values["--queue"] ?? "\(folder.path)/queue.jsonl")
      carrier = UnreliableCarrier(FolderCarrier())
    default:
      throw Problem("--from and --to go together: give both, or neither to see how it works")
    }
  }

  private static func values(of arguments: some Sequence<String>) throws -> [String: String] {
    var values: [String: String] = [:]
    var rest = Array(arguments)[...]
    while let name = rest.popFirst() {
      guard ["--from", "--to", "--queue", "--concurrency", "--timeout"].contains(name) else {
        throw Problem("there is no option '\(name)'; --help shows those there are")
      }
      guard let value = rest.popFirst(), !value.isEmpty, !value.hasPrefix("--") else {
        throw Problem("\(name) needs a value after it; --help shows which")
      }
      guard values.updateValue(value, forKey: name) == nil else {
        throw Problem("\(name) is given twice; give it once")
      }
    }
    return values
  }

  private static func number(
    _ values: [String: String],
    _ name: String,
    _ range: ClosedRange<Int>
  ) throws -> Int? {
    guard let text = values[name] else { return nil }
    guard let number = Int(text), range.contains(number) else {
      throw Problem(
        "\(name) is '\(text)'; give a whole number from \(range.lowerBound) to \(range.upperBound)"
      )
    }
    return number
  }

  private static func target(_ text: String) throws -> URL {
    let url = URL(string: text)
    guard text.contains("://") || url?.scheme != nil else {
      return URL(fileURLWithPath: text).standardizedFileURL
    }
    guard let url, ["http", "https"].contains(url.scheme?.lowercased()),
      url.host()?.isEmpty == false, 1...65535 ~= url.port ?? 80
    else {
      throw Problem("'\(text)' is no address like https://example.com/inbox, and no folder")
    }
    return url
  }
}

extension Options {
  /// The command that goes on where this process stopped.
  var command: String {
    let values = [source.path, place, queueFile.path].map { value in
      "'\(value.replacing("'", with: #"'\''"#))'"
    }
    return "swift run Outbox --from \(values[0]) --to \(values[1]) --queue \(values[2])"
  }

  var place: String { target.isFileURL ? target.path : target.absoluteString }

  /// Returns the files to deliver.
  func deliveries() throws -> [Delivery] {
    var isFolder: ObjCBool = false
    guard FileManager.default.fileExists(atPath: source.path, isDirectory: &isFolder),
      isFolder.boolValue
    else { throw Problem("there is no folder \(source.path) to deliver; give another with --from") }
    if target.isFileURL { try makeTarget() }
    do {
      return try FileManager.default.subpathsOfDirectory(atPath: source.path).sorted()
        .compactMap(delivery(of:))
    } catch {
      throw Problem("\(source.path) can't be listed: \(error.localizedDescription)")
    }
  }

  private func delivery(of path: String) -> Delivery? {
    let file = source.appending(path: path).path
    guard ![queueFile.path, queueFile.path + ".lock"].contains(file) else { return nil }
    // A file that was deleted since stays on the list. It will be abandoned, with the reason.
    let attributes = (try? FileManager.default.attributesOfItem(atPath: file)) ?? [:]
    let type = attributes[.type] as? FileAttributeType ?? .typeRegular
    guard type == .typeRegular else { return nil }
    return Delivery(
      file: file,
      target: target.appending(path: path),
      size: attributes[.size] as? Int ?? 0,
      modified: attributes[.modificationDate] as? Date ?? .distantPast
    )
  }

  private func makeTarget() throws {
    var place = target
    while !FileManager.default.fileExists(atPath: place.path) { place.deleteLastPathComponent() }
    let folders = [place, source].map { $0.resolvingSymlinksInPath().path + "/" }
    guard !folders[0].hasPrefix(folders[1]) else {
      throw Problem("\(target.path) lies in the folder to deliver; choose one outside it")
    }
    do {
      try FileManager.default.createDirectory(at: target, withIntermediateDirectories: true)
    } catch {
      throw Problem("the folder \(target.path) can't be made: \(error.localizedDescription)")
    }
  }
}

// MARK: - Progress

/// The number of files in each state.
struct Counts {
  var left = 0
  var delivered = 0
  var givenUp = 0

  var ended: Int { delivered + givenUp }

  init(_ queue: TaskQueue, since before: Counts? = nil) async throws {
    left = try await queue.count(matching: TaskFilter(states: [.waiting, .running]))
    delivered = try await queue.count(matching: TaskFilter(states: [.succeeded]))
    givenUp = try await queue.count(matching: .deadLetters)
    if let before {
      delivered -= before.delivered
      givenUp -= before.givenUp
    }
  }
}

/// Follows a queue, shows its progress, and shuts it down when nothing is left.
final class Monitor: Sendable {
  private struct Tally {
    var bytes = 0
    var retries = 0
    var retrying: Set<TaskID> = []
    var lastFailure = ""
    var signal: Int32?
  }

  private let queue: TaskQueue
  private let before: Counts
  private let givenUpBefore: Set<TaskID>
  private let start = ContinuousClock.now
  private let isTerminal = isatty(STDOUT_FILENO) == 1
  private let tally = Mutex(Tally())

  init(_ queue: TaskQueue) async throws {
    self.queue = queue
    before = try await Counts(queue)
    givenUpBefore = Set(try await queue.tasks(matching: .deadLetters, limit: .max).map(\.id))
  }

  var counts: Counts {
    get async throws { try await Counts(queue, since: before) }
  }

  func delivered(bytes: Int) { tally.withLock { $0.bytes += bytes } }

  // snippet.events
  /// Follows the queue's events, and shuts it down when nothing is left.
  func follow(_ events: TaskEvents) async {
    for await event in events {
      tally.withLock { tally in
        switch event {
        case .failed(let task, let reason, _, _):
          tally.retries += 1
          tally.retrying.insert(task.id)
          tally.lastFailure = reason
        case .succeeded(let task, _), .abandoned(let task, _, _):
          tally.retrying.remove(task.id)
        default: break
        }
      }
      if (try? await counts.left) == 0 { queue.beginShutDown() }
    }
  }
  // snippet.end

  /// Shuts the queue down, and gives running attempts half a minute at most to end.
  ///
  /// A second call ends the process at once, which harms nothing.
  func stop(_ signal: Int32) {
    guard tally.withLock({ exchange(&$0.signal, with: signal) }) == nil else { _exit(128 + signal) }
    say("\nStopping when what is under way has ended; ask again to stop at once\n")
    queue.beginShutDown(within: .seconds(30))
  }

  /// Shows the progress until it is cancelled.
  func show() async {
    while (try? await Task.sleep(for: isTerminal ? .milliseconds(100) : .seconds(2))) != nil {
      try? await showOnce()
    }
  }

  private func showOnce() async throws {
    let (counts, tally) = (try await counts, tally.withLock { $0 })
    let retrying = min(tally.retrying.count, counts.left)
    let seconds = (ContinuousClock.now - start) / .seconds(1)
    let bytes = Int64(Double(tally.bytes) / seconds).formatted(.byteCount(style: .file))
    var line = "\(counts.delivered) done, \(counts.left - retrying) waiting, \(retrying) retrying, "
    line += "\(counts.givenUp) failed, \(Int(Double(counts.delivered) / seconds)) files/s, "
    line += "\(bytes)/s"
    if retrying > 0 { line += "; \(tally.lastFailure)" }
    guard isTerminal else { return say(line + "\n") }
    let bar = String(repeating: "█", count: 10 * counts.ended / max(counts.left + counts.ended, 1))
    line = "\(bar.padding(toLength: 10, withPad: "░", startingAt: 0)) \(line)"
    say("\r\(line.prefix(Self.width))\u{1B}[K")
  }

  /// One less than the columns of the terminal, so that the line does not wrap.
  private static var width: Int {
    var size = winsize()
    let isKnown = ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 1
    return isKnown ? Int(size.ws_col) - 1 : 79
  }

  /// Prints how the work ended, and returns the exit code.
  func summary(_ options: Options) async throws -> Int32 {
    let (counts, tally) = (try await counts, tally.withLock { $0 })
    let seconds = (ContinuousClock.now - start) / .seconds(1)
    let bytes = Int64(tally.bytes).formatted(.byteCount(style: .file))
    let time = seconds.formatted(.number.precision(.fractionLength(1)))
    if isTerminal { say("\r\u{1B}[K") }
    say(
      "Delivered \(counts.delivered) files (\(bytes)) in \(time) s, after \(tally.retries) retries\n"
    )
    let letters = try await queue.tasks(matching: .deadLetters, limit: .max)
    for letter in letters where !givenUpBefore.contains(letter.id) {
      say("Abandoned: \(letter.lastError ?? "")\n")
    }
    guard counts.left > 0 else { return counts.givenUp > 0 ? 1 : 0 }
    say("\(counts.left) files are left; go on with: \(options.command)\n")
    return 128 + (tally.signal ?? SIGTERM)
  }
}

func say(_ text: String) { try? FileHandle.standardOutput.write(contentsOf: Data(text.utf8)) }

// MARK: - The work

/// Delivers all files, and returns the exit code.
func deliver(_ options: Options) async throws -> Int32 {
  let deliveries = try options.deliveries()
  // snippet.queue
  let store = JSONFileStore(at: options.queueFile)
  let queue = TaskQueue(
    name: "outbox",
    persistence: store,
    configuration: TaskQueueConfiguration(
      maxConcurrentTasks: options.concurrency,
      backoff: .exponential(from: .milliseconds(200), multiplier: 1.5)
        .jittered(.proportional(0.25)).capped(at: .seconds(5)),
      maxInterruptions: .alwaysRetry,
      succeededRetention: .forever,
      abandonedRetention: .forever
    )
  )
  // snippet.end
  try await add(deliveries, to: queue)
  let monitor = try await Monitor(queue)
  await queue.register(Delivery.self) { delivery, context in
    try await options.carrier.deliver(delivery, for: context.id)
    monitor.delivered(bytes: delivery.size)
  }
  let count = try await monitor.counts.left
  var exitCode: Int32 = 0
  if count > 0 {
    say("Delivering \(count) files from \(options.source.path) to \(options.place)\n")
    say("The queue is in \(options.queueFile.path)\n")
    try await run(queue, monitor)
    exitCode = try await monitor.summary(options)
  } else {
    say("Nothing to do: \(options.source.path) holds no file that was not delivered before\n")
  }
  try await store.close()
  return exitCode
}

// snippet.enqueue
/// Adds the new files, and those that were abandoned, in one durable write.
func add(_ deliveries: [Delivery], to queue: TaskQueue) async throws {
  let others = TaskFilter(
    queue: nil,
    excludedNames: [Delivery.taskName],
    states: TaskFilter.unfinished.states
  )
  guard try await queue.count(matching: others) == 0 else {
    throw Problem(
      "the queue file has tasks of another program; choose another file"
    )
  }
  let tasks = try await queue.enqueue(contentsOf: deliveries)
  // What is tried once more is no dead letter any longer.
  let new = zip(deliveries, tasks).filter(\.1.isNew)
  let keys = new.compactMap(\.0.uniqueKey)
  try await queue.remove(
    matching: TaskFilter(states: [.abandoned], uniqueKeys: Set(keys))
  )
}
// snippet.end

// snippet.run
/// Runs the queue until nothing is left, a signal comes or its file fails.
func run(_ queue: TaskQueue, _ monitor: Monitor) async throws {
  let events = queue.events
  let signals = [SIGINT, SIGTERM].map { number in
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(
      signal: number,
      queue: .global()
    )
    source.setEventHandler { monitor.stop(number) }
    source.activate()
    return source
  }
  defer { for source in signals { source.cancel() } }
  try await withThrowingDiscardingTaskGroup { group in
    group.addTask { await monitor.follow(events) }
    group.addTask { await monitor.show() }
    do {
      try await queue.run()
    } catch let error as TaskQueueError where error.code == .shutDown {
      // A signal came before the run began.
    }
    group.cancelAll()
  }
}
// snippet.end

if CommandLine.arguments.contains("--help") {
  say(Options.usage + "\n")
  exit(0)
}
do {
  exit(try await deliver(Options(CommandLine.arguments.dropFirst())))
} catch {
  try? FileHandle.standardError.write(contentsOf: Data("Outbox: \(error)\n".utf8))
  exit(2)
}
