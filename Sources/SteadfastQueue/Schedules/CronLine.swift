/// Reads lines of cron.
enum CronLine {
  /// What may be in one of the five fields.
  private struct Field {
    var name: String
    var range: ClosedRange<Int>
    var names: [String] = []
    /// The number of the first of `names`.
    var firstName = 0
  }

  private static let fields = [
    Field(name: "minute", range: 0...59),
    Field(name: "hour", range: 0...23),
    Field(name: "day of the month", range: 1...31),
    Field(
      name: "month",
      range: 1...12,
      names: [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
      ],
      firstName: 1
    ),
    Field(
      name: "day of the week",
      range: 0...7,
      names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    ),
  ]

  private static let shorthands = [
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
  ]

  /// Returns the pattern of a line, and the line with single spaces.
  static func pattern(of line: String) throws(TaskQueueError) -> (CalendarPattern, String) {
    // A line that was read from a file may end with its line end.
    var words = line.split(whereSeparator: \.isWhitespace).map { $0.lowercased() }
    let text = words.joined(separator: " ")
    if words.count == 1, let meaning = shorthands[words[0]] {
      words = meaning.split(separator: " ").map(String.init)
    }
    guard words.count == fields.count else {
      throw error(
        line,
        "it has \(words.count) fields; give five: minute, hour, day of the month, month and day of "
          + "the week, without a command"
      )
    }
    var sets: [UInt64] = []
    for (word, field) in zip(words, fields) { sets.append(try set(word, field, line)) }
    let pattern = CalendarPattern(
      minutes: sets[0],
      hours: UInt32(sets[1]),
      days: UInt32(sets[2]),
      months: UInt16(sets[3]),
      // 7 is Sunday, as 0 is.
      weekdays: UInt8(sets[4] & 0x7F | sets[4] >> 7),
      needsOneOfBoth: !words[2].hasPrefix("*") && !words[4].hasPrefix("*")
    )
    guard pattern.hasDays else { throw error(line, "none of its months has such a day") }
    return (pattern, text)
  }

  private static func set(
    _ word: String,
    _ field: Field,
    _ line: String
  ) throws(TaskQueueError) -> UInt64 {
    var set: UInt64 = 0
    for part in word.split(separator: ",", omittingEmptySubsequences: false) {
      let (range, step) = try range(part, field, line)
      for number in stride(from: range.lowerBound, through: range.upperBound, by: step) {
        set |= 1 << UInt64(number)
      }
    }
    return set
  }

  /// Reads `*`, `5`, `1-5`, `*/15` or `10-50/20`.
  private static func range(
    _ part: Substring,
    _ field: Field,
    _ line: String
  ) throws(TaskQueueError) -> (ClosedRange<Int>, step: Int) {
    let pieces = part.split(separator: "/", omittingEmptySubsequences: false)
    let ends = pieces[0].split(separator: "-", omittingEmptySubsequences: false)
    guard pieces.count <= 2, ends.count <= 2 else {
      throw error(line, "'\(part)' is no \(field.name): it has too many '/' or '-'")
    }
    let isAll = pieces[0] == "*"
    let low = isAll ? field.range.lowerBound : try number(ends[0], field, line)
    let high =
      isAll ? field.range.upperBound : ends.count == 2 ? try number(ends[1], field, line) : low
    guard low <= high else {
      throw error(line, "the range '\(part)' of the \(field.name) ends before it begins")
    }
    guard pieces.count == 2 else { return (low...high, 1) }
    guard isAll || ends.count == 2 else {
      throw error(
        line,
        "the step of '\(part)' needs a range before it, as in '\(low)-\(field.range.upperBound)/2'"
      )
    }
    guard let step = Int(pieces[1]), step >= 1 else {
      throw error(line, "the step of '\(part)' is not a number of at least 1")
    }
    return (low...high, step)
  }

  private static func number(
    _ text: Substring,
    _ field: Field,
    _ line: String
  ) throws(TaskQueueError) -> Int {
    if let index = field.names.firstIndex(where: { $0 == text }) { return index + field.firstName }
    let isDigits = !text.isEmpty && text.utf8.allSatisfy { $0 >= 0x30 && $0 <= 0x39 }
    guard isDigits, let number = Int(text), field.range.contains(number) else {
      throw error(
        line,
        "'\(text)' is no \(field.name); give \(field.range.lowerBound) to \(field.range.upperBound)"
          + (field.names.isEmpty ? "" : ", or a name such as '\(field.names[1])'")
      )
    }
    return number
  }

  private static func error(_ line: String, _ problem: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, "the line of cron '\(line)' makes no sense: \(problem)")
  }
}
