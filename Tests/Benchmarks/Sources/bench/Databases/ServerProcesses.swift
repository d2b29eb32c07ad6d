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

/// A database server on this machine: a process, and one for each session.
///
/// Only Linux tells what they cost.
struct ServerProcesses: Sendable {
  private let parent: Int

  /// Finds a server by the process of one of its sessions; `nil` if it is not on this machine.
  init?(child: Int) {
    guard let parent = ProcessFigures(child)?.parent else { return nil }
    self.parent = parent
  }

  /// The time of all processors together that the server has taken.
  ///
  /// What a session has taken that has ended counts for the server's first process.
  func processorNanoseconds() -> Double {
    let children = text(of: "/proc/\(parent)/task/\(parent)/children")?.split(separator: " ") ?? []
    let figures = ([parent] + children.compactMap { Int($0) }).compactMap(ProcessFigures.init)
    return figures.reduce(0) { $0 + $1.processorNanoseconds }
  }
}

/// What the system says of a process.
private struct ProcessFigures {
  let parent: Int
  let processorNanoseconds: Double

  init?(_ id: Int) {
    // The name of the program, in parentheses, may have spaces.
    guard let text = text(of: "/proc/\(id)/stat"), let end = text.lastIndex(of: ")") else {
      return nil
    }
    let fields = text[end...].split(separator: " ").dropFirst().map { Int($0) ?? 0 }
    // Those that follow the state: the parent, and from the 12th on, the ticks of the process and
    // of its children that have ended.
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

private func text(of path: String) -> String? {
  try? String(contentsOfFile: path, encoding: .utf8)
}
