import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What several processes asked of one store, and what they were answered.
///
/// ``HistoryRecorder`` writes it, a file for each process.
///
/// ```swift
/// let report = try History(contentsOf: files).check()
/// #expect(report.passes, "\(report)")
/// ```
/// The check knows nothing of how the store works. It looks for answers that no sound store could
/// have given, whatever happened to the calls without an answer. So it reports nothing by mistake,
/// but may miss what calls that overlap would hide.
public struct History: Sendable {
  /// The lines that one file has, or that were recorded together.
  struct Source: Sendable {
    let name: String
    let lines: [HistoryLine]
  }

  let sources: [Source]

  /// Reads a history.
  ///
  /// A process that was killed may have left half a line at the end of its file. That line is left
  /// out.
  /// - Parameter files: the files, one for each process.
  /// - Throws: A ``HistoryError`` that names the file and the line if anything else can't be read;
  ///   the error of a file that can't be read.
  public init(contentsOf files: [URL]) throws {
    sources = try files.map { file in
      let name = file.lastPathComponent
      return Source(name: name, lines: try Self.lines(of: Data(contentsOf: file), named: name))
    }
  }

  /// Makes a history of lines that were recorded one after another, whatever their processes are.
  package init(_ lines: [HistoryLine]) { sources = [Source(name: "history", lines: lines)] }

  package static func lines(of data: Data, named name: String) throws -> [HistoryLine] {
    let decoder = JSONDecoder()
    let texts = data.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    // Behind the last line break there is nothing, or half a line.
    return try texts.dropLast().enumerated().map { index, text in
      do {
        return try decoder.decode(HistoryLine.self, from: Data(text))
      } catch {
        throw HistoryError(
          "line \(index + 1) of \(name) is not a line of a history, or one of a later version"
        )
      }
    }
  }

  func text(at place: HistoryPlace) -> String {
    let source = sources[place.source]
    let line = source.lines[place.line]
    let bytes = try? StableJSON.encode(line)
    let text = bytes.map { String(decoding: $0, as: UTF8.self) } ?? "\(line)"
    return "\(source.name):\(place.line + 1): \(text)"
  }
}

/// A line's place in a history, and its date.
struct HistoryPlace: Sendable {
  /// Microseconds since 1970.
  let date: Int64
  let source: Int
  let line: Int

  /// Whether what happened here is certain to have happened earlier.
  ///
  /// Lines of different files with the same date may have been written in either order.
  func isCertainlyBefore(_ other: HistoryPlace) -> Bool {
    source == other.source ? line < other.line : date < other.date
  }
}

extension HistoryPlace: Comparable {
  /// An order to sort by; it is arbitrary for lines of two files with the same date.
  static func < (left: HistoryPlace, right: HistoryPlace) -> Bool {
    (left.date, left.source, left.line) < (right.date, right.source, right.line)
  }
}
