#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// A database server on this machine: a process, and one more for each session.
///
/// Their cost is available only on Linux.
struct ServerProcesses: Sendable {
  private let parent: Int

  /// Finds a server on this machine by the process of a session; `nil` if there is no such process.
  init?(child: Int) {
    guard let parent = ProcessFigures(child)?.parent else { return nil }
    self.parent = parent
  }

  /// Returns the processor time of the server, on all processors together.
  ///
  /// The time of ended sessions counts for the server's main process.
  func processorNanoseconds() -> Double {
    let list = contents(ofFile: "/proc/\(parent)/task/\(parent)/children")
    let children = list?.split(separator: " ") ?? []
    let figures = ([parent] + children.compactMap { Int($0) }).compactMap(ProcessFigures.init)
    return figures.reduce(0) { $0 + $1.processorNanoseconds }
  }
}

/// The system's statistics about a process.
private struct ProcessFigures {
  let parent: Int
  let processorNanoseconds: Double

  init?(_ id: Int) {
    // The name of the program, in parentheses, can contain spaces.
    guard let text = contents(ofFile: "/proc/\(id)/stat"), let end = text.lastIndex(of: ")") else {
      return nil
    }
    let fields = text[end...].split(separator: " ").dropFirst().map { Int($0) ?? 0 }
    // The first field here is the state, and the second is the parent. The fields from the 12th to
    // the 15th are the ticks of the process and of its ended children.
    guard fields.count > 14 else { return nil }
    parent = fields[1]
    let ticks = fields[11...14].reduce(0, +)
    #if os(Linux)
    processorNanoseconds = Double(ticks) / Double(sysconf(Int32(_SC_CLK_TCK))) * 1e9
    #else
    processorNanoseconds = Double(ticks)
    #endif
  }
}

private func contents(ofFile path: String) -> String? {
  try? String(contentsOfFile: path, encoding: .utf8)
}
