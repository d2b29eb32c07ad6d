#if os(Linux)
import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Monitors the machine's network, and ends the monitors.
@Suite(.timeLimit(.minutes(5))) struct NetworkMonitorTests {
  @Test func `each new stream immediately reports whether there is a network`() async {
    let monitor = NetworkMonitor()
    for _ in 1...3 {
      var values = monitor.values().makeAsyncIterator()
      #expect(await values.next() != nil)
    }
  }

  @Test func `if the system refuses a socket, the condition counts as met`() async {
    let (ends, end) = AsyncStream.makeStream(of: Void.self)
    let refused = RouteMonitor.values(
      open: { _ throws(SystemCallError) in throw SystemCallError("socket", EACCES) },
      didEnd: { end.yield() }
    )
    var values = refused.makeAsyncIterator()
    #expect(await values.next() == true)
    await ends.first { true }
  }

  @Test func `if the system refuses to list the routes, the condition counts as met`() async {
    let values = RouteMonitor.values(open: { groups throws(SystemCallError) in
      guard groups != NetlinkSocket.Groups.none else { throw SystemCallError("socket", EMFILE) }
      return try NetlinkSocket.open(groups)
    })
    var iterator = values.makeAsyncIterator()
    #expect(await iterator.next() == true)
  }

  @Test func `cancelling the consumer ends the thread and closes its sockets`()
    async throws
  {
    let watched = WatchedMonitor()
    let values = watched.values()
    let (reports, report) = AsyncStream.makeStream(of: Bool.self)
    // The test cancels the consumer while it waits for the next value.
    let consumer = Task {
      for await value in values { report.yield(value) }
    }
    var first = reports.makeAsyncIterator()
    #expect(await first.next() != nil)
    #expect(try watched.openSockets().count == 1)
    consumer.cancel()
    await consumer.value
    await watched.end()
    #expect(try watched.openSockets() == [])
    #expect(watched.sockets.count >= 2)
  }

  @Test func `releasing the stream ends the thread and closes its sockets`()
    async throws
  {
    let watched = WatchedMonitor()
    _ = watched.values()
    await watched.end()
    #expect(try watched.openSockets() == [])
  }

  @Test func `streams leak no file descriptors`() async throws {
    // Counts only netlink sockets: other tests use sockets of other families.
    func socketCount() throws -> Int {
      let known = try String(contentsOfFile: "/proc/self/net/netlink", encoding: .utf8)
      let numbers = Set(known.split(separator: "\n").compactMap { $0.split(separator: " ").last })
      return try FileDescriptors.links().count { link in
        link.hasPrefix("socket:[") && numbers.contains(link.dropFirst(8).dropLast())
      }
    }
    let before = try socketCount()
    for _ in 1...300 {
      let watched = WatchedMonitor()
      var values = watched.values().makeAsyncIterator()
      _ = await values.next()
      values = AsyncStream { $0.finish() }.makeAsyncIterator()
      await watched.end()
    }
    // The last threads may not have closed their sockets yet, and other tests have sockets, too.
    #expect(try socketCount() < before + 150)
  }
}

/// A monitor that records the sockets that it opens.
///
/// A test can await the end of its thread.
struct WatchedMonitor: Sendable {
  let sockets = Log<String>()
  private let ends: AsyncStream<Void>
  private let didEnd: AsyncStream<Void>.Continuation

  init() { (ends, didEnd) = AsyncStream.makeStream() }

  func values() -> AsyncStream<Bool> {
    RouteMonitor.values(
      open: { groups throws(SystemCallError) in
        let socket = try NetlinkSocket.open(groups)
        sockets.add(FileDescriptors.link(of: Int(socket.descriptor)) ?? "")
        return socket
      },
      didEnd: { didEnd.yield() }
    )
  }

  /// Waits until the thread has closed its sockets.
  func end() async { await ends.first { true } }

  func openSockets() throws -> Set<String> {
    Set(try FileDescriptors.links()).intersection(sockets.entries)
  }
}

/// The open files of the process, by their names in `/proc`: `socket:[12345]`.
enum FileDescriptors {
  private static let folder = "/proc/self/fd"

  static func link(of descriptor: Int) -> String? {
    try? FileManager.default.destinationOfSymbolicLink(atPath: "\(folder)/\(descriptor)")
  }

  static func links() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder).compactMap { Int($0) }
      .compactMap { link(of: $0) }
  }
}
#endif
