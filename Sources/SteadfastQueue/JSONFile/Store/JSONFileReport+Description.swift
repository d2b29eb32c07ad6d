extension JSONFileReport: CustomStringConvertible {
  /// What was found, for a person to read: a line for the file as a whole, and one for each of the
  /// first ten problems.
  public var description: String {
    var parts = ["\(recordCount) good line\(recordCount == 1 ? "" : "s")"]
    if lostRecordCount > 0 { parts.append("\(lostRecordCount) lost") }
    if tornByteCount > 0 { parts.append("\(tornByteCount) bytes torn at the end") }
    let tasks = TaskState.allCases.compactMap { state in
      counts[state].map { "\($0) \(state.rawValue)" }
    }
    let summary =
      "\(isSound ? "sound" : "damaged"), \(byteCount) bytes: \(parts.joined(separator: ", ")); tasks: "
      + (tasks.isEmpty ? "none" : tasks.joined(separator: ", "))
    let lines = [summary] + problems.prefix(10).map(\.description)
    let rest = problemCount - (lines.count - 1)
    return lines.joined(separator: "\n") + (rest > 0 ? "\nand \(rest) problems more" : "")
  }
}
