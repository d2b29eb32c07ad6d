import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Ends the program, and prints the seed, when a round takes longer than the limit.
final class Watchdog: Sendable {
  private struct State {
    var round = ""
    var begin = ContinuousClock.now
  }

  private static let limit: Duration = .seconds(120)
  private let state = Mutex(State())

  /// Calls `body`, and checks the rounds on a separate thread, since a hang can block all of
  /// Swift's threads.
  static func whileWatching(_ body: (Watchdog) async throws -> Void) async throws {
    let watchdog = Watchdog()
    let timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "watchdog"))
    timer.schedule(deadline: .now() + 5, repeating: 5)
    timer.setEventHandler { [weak watchdog] in watchdog?.exitIfStuck() }
    timer.activate()
    defer { timer.cancel() }
    try await body(watchdog)
  }

  func startRound(_ round: String) { state.withLock { $0 = State(round: round) } }

  private func exitIfStuck() {
    let (round, begin) = state.withLock { ($0.round, $0.begin) }
    guard begin.duration(to: .now) > Self.limit else { return }
    print("\(round): still running after \(Self.limit)")
    exit(2)
  }
}

/// Returns the process's resident memory in bytes; 0 where that is unavailable.
func residentBytes() -> Int {
  #if os(Linux)
  guard let file = unsafe fopen("/proc/self/statm", "r") else { return 0 }
  defer { unsafe fclose(file) }
  var text = [CChar](repeating: 0, count: 128)
  guard unsafe fgets(&text, 128, file) != nil else { return 0 }
  let fields = text.prefix { $0 != 0 }.split(separator: CChar(UInt8(ascii: " ")))
  guard fields.count > 1 else { return 0 }
  let pages = String(decoding: fields[1].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  return (Int(pages) ?? 0) * 4096
  #else
  return 0
  #endif
}
