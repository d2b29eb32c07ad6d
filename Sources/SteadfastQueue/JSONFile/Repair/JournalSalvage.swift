/// Reads a damaged file: all lines that can be read, whatever is between them.
///
/// The lines count in the order of their sequence numbers, wherever they are. Swapped lines are put
/// in order. If a line is there twice, the second one is skipped. If the end of a batch is lost,
/// the lines that are there count, because they may have been promised. What a line presupposes is
/// taken to have happened (`TaskTable.salvage(_:)`).
struct JournalSalvage {
  private struct Place {
    let line: JournalLine
    let number: Int
    let range: Range<Int>
    /// What is wrong with the place of the line; `nil` if nothing is.
    let flaw: String?
  }

  private(set) var table = TaskTable()
  private(set) var version: Int?
  private(set) var generation: Int?
  /// Whether the last line is a seal that can be read.
  private(set) var isSealed = false
  /// How many sequence numbers below the greatest one of a readable line belong to no line.
  private(set) var lostLineCount: UInt64 = 0
  /// Lines that are left out.
  private(set) var skipped = ProblemList()
  /// Lines that count, but are not where they should be.
  private(set) var misplaced = ProblemList()

  private let bytes: [UInt8]
  private var decoder: JournalDecoder
  private var places: [Place] = []
  private var lineCount = 0
  private var nextSequence: UInt64 = 0
  private var badLines: UInt64 = 0
  /// The `firstUnsynced` of the batch that has begun and not ended; `nil` if there is none.
  private var openBatch: UInt64?

  /// How many lines can be read.
  var readableLineCount: Int { places.count }

  /// - Throws: If the file is not a queue file, or a newer version has written it.
  init(_ bytes: [UInt8]) throws(JournalProblem) {
    self.bytes = bytes
    decoder = JournalDecoder(bytes)
    findLines()
    guard !places.isEmpty else { throw .notAJournal }
    // Most damaged files have only a few bad lines, and need no sorting.
    if !zip(places, places.dropFirst()).allSatisfy({ $0.line.sequence <= $1.line.sequence }) {
      places.sort { ($0.line.sequence, $0.number) < ($1.line.sequence, $1.number) }
    }
    try applyLines()
    table.promoteSuccessorsWithoutHolder()
    table.interruptLeased()
  }

  // MARK: Finding lines

  private mutating func findLines() {
    var position = 0
    while position < bytes.count {
      let end = bytes.lineFeed(from: position) ?? bytes.count
      lineCount += 1
      if let line = JournalLine(bytes, position..<end) {
        add(line, position..<end, nil)
      } else if let line = JournalLine(beforeReturnIn: bytes, position..<end) {
        add(line, position..<end - 1, JournalLine.returnFlaw)
      } else if let (first, second) = mergedLines(in: position..<end) {
        add(first.line, first.range, nil)
        add(second.line, second.range, "the line feed before it is lost")
      } else if let found = lineBehindZeros(in: position..<end) {
        // Any number of lines may have been there.
        badLines = .max
        openBatch = nil
        add(found.line, found.range, "zeros stand before it")
      } else {
        badLines += 1
        openBatch = nil
        let reason = end < bytes.count ? "its checksum is wrong" : "it is cut off"
        skipped.add(reason, line: lineCount, byte: position)
      }
      position = end + 1
    }
  }

  private mutating func add(_ line: JournalLine, _ range: Range<Int>, _ flaw: String?) {
    let flaw = self.flaw(of: line) ?? flaw
    places.append(Place(line: line, number: lineCount, range: range, flaw: flaw))
  }

  private typealias Found = (line: JournalLine, range: Range<Int>)

  /// Finds two lines that look like one, as the line feed between them is changed or gone.
  ///
  /// The first line has a correct checksum and begins where a line does, so what follows it is no
  /// payload.
  private func mergedLines(in range: Range<Int>) -> (Found, Found)? {
    let prefix = JournalLine.prefix
    let starts = range.dropFirst().filter { start in
      bytes[start] == prefix[0] && bytes[start..<range.upperBound].starts(with: prefix)
    }
    // The payloads of both may contain what looks like the beginning of a line, but few do so more
    // than once. So only the first three places and the last three are tried.
    for start in starts.prefix(3) + starts.dropFirst(3).suffix(3) {
      guard let second = JournalLine(bytes, start..<range.upperBound) else { continue }
      for end in [start - 1, start] where end > range.lowerBound {
        guard let first = JournalLine(bytes, range.lowerBound..<end) else { continue }
        return ((first, range.lowerBound..<end), (second, start..<range.upperBound))
      }
    }
    return nil
  }

  /// Finds the line that follows the last zero of a range, and reaches to the end of the range.
  ///
  /// What was before the line is lost. The line is not part of a payload, as no line has a zero in
  /// it.
  private func lineBehindZeros(in range: Range<Int>) -> Found? {
    guard let zero = bytes[range].lastIndex(of: 0),
      let line = JournalLine(bytes, zero + 1..<range.upperBound)
    else { return nil }
    return (line, zero + 1..<range.upperBound)
  }

  /// Returns what is wrong with the place of a line; `nil` if nothing is.
  private mutating func flaw(of line: JournalLine) -> String? {
    defer {
      nextSequence = max(nextSequence, line.sequence == .max ? .max : line.sequence + 1)
      badLines = 0
      openBatch = line.isContinued ? line.firstUnsynced : nil
    }
    // Bad lines before it are problems of their own, and may have had the missing numbers.
    let isExpected = line.sequence >= nextSequence && line.sequence - nextSequence <= badLines
    guard isExpected else {
      return "it has the number \(line.sequence) where \(nextSequence) should be"
    }
    if let openBatch, openBatch != line.firstUnsynced { return "the batch before it has no end" }
    return nil
  }

  // MARK: Applying lines

  private mutating func applyLines() throws(JournalProblem) {
    var sequence: UInt64 = 0
    var twins: Set<ArraySlice<UInt8>> = []
    for index in places.indices {
      let place = places[index]
      if place.line.sequence > sequence {
        lostLineCount += place.line.sequence - sequence
      }
      let isRepeated = index > 0 && places[index - 1].line.sequence == place.line.sequence
      if !isRepeated {
        twins.removeAll(keepingCapacity: true)
        if index + 1 < places.count, places[index + 1].line.sequence == place.line.sequence {
          twins.insert(bytes[place.range])
        }
      }
      if isRepeated, !twins.insert(bytes[place.range]).inserted {
        skip(place, "it stands in the file twice")
      } else {
        try apply(place)
      }
      sequence = place.line.sequence == .max ? .max : place.line.sequence + 1
    }
  }

  private mutating func apply(_ place: Place) throws(JournalProblem) {
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try decoder.entry(of: place.line)
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: place.number)
      case .malformed where place.line.sequence == 0: throw .notAJournal
      case .malformed(let reason): return skip(place, reason)
      }
    }
    switch entry {
    case .header(let version, let generation):
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      guard self.version == nil else { return skip(place, "it is a second header") }
      self.version = version
      self.generation = generation
    case .seal:
      isSealed = place.number == lineCount
    case .task, .compacted, .change, .addition, .supersession, .restart, .value, .memory, .begin,
      .interruption:
      guard table.salvage(entry) else {
        return skip(place, "it does not fit the lines before it")
      }
    }
    if let flaw = place.flaw {
      misplaced.add(flaw, line: place.number, byte: place.range.lowerBound)
    }
  }

  private mutating func skip(_ place: Place, _ reason: String) {
    skipped.add(reason, line: place.number, byte: place.range.lowerBound)
  }
}
