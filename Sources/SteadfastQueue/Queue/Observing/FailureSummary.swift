public import SystemFoundation

/// The failures of a queue's tasks, in groups of failures whose texts have the same shape.
///
/// ``TaskQueue/failures(since:limit:)`` returns it. Two thousand failures are often three errors,
/// and each group is one of them.
public struct FailureSummary: Sendable, Hashable {
  /// The groups; the group with the most tasks comes first.
  public let groups: [FailureGroup]
  /// The number of tasks that were looked at.
  public let taskCount: Int
  /// Whether all tasks that have failed were looked at; `false` if the limit left some out.
  public let isWhole: Bool

  init(_ counter: FailureCounter) {
    groups = counter.groups.values.sorted { left, right in
      left.count != right.count ? left.count > right.count : left.shape.id < right.shape.id
    }
    taskCount = counter.taskCount
    isWhole = counter.isWhole
  }
}

/// Groups failed tasks, page by page.
struct FailureCounter {
  /// The maximum number of tasks.
  let limit: Int
  fileprivate var groups: [FailureShape: FailureGroup] = [:]
  fileprivate var taskCount = 0
  /// Whether no task was left out.
  private(set) var isWhole = true

  init(limit: Int) { self.limit = limit }

  /// Adds tasks until their number reaches the limit; newer tasks come first.
  mutating func add(_ tasks: [TaskRecord]) {
    for task in tasks {
      guard let failure = task.failures.last else { continue }
      guard taskCount < limit else {
        isWhole = false
        return
      }
      taskCount += 1
      let shape = FailureShape(of: failure.reason)
      groups[shape, default: FailureGroup(shape: shape, first: failure)].add(task, failure)
    }
  }
}

/// The tasks whose last failures have texts of the same shape.
public struct FailureGroup: Sendable, Hashable {
  private static let maxSampleCount = 3

  /// The shape of the texts.
  public let shape: FailureShape
  /// The number of tasks that were abandoned.
  public private(set) var abandonedCount = 0
  /// The number of tasks that have not ended; most of them wait for a retry.
  public private(set) var unfinishedCount = 0
  /// The number of tasks with each name.
  public private(set) var names: [String: Int] = [:]
  /// The date of the earliest of the last failures.
  public private(set) var firstDate: Date
  /// The date of the latest failure.
  public private(set) var lastDate: Date
  /// The text of the latest failure.
  public private(set) var reason: String
  /// Up to three of the tasks: abandoned ones if there are any, and the newest first.
  public private(set) var samples: [TaskID] = []

  /// The number of tasks.
  public var count: Int { abandonedCount + unfinishedCount }

  fileprivate init(shape: FailureShape, first failure: TaskFailure) {
    self.shape = shape
    (firstDate, lastDate, reason) = (failure.date, failure.date, failure.reason)
  }

  fileprivate mutating func add(_ task: TaskRecord, _ failure: TaskFailure) {
    if task.state.isFinished { abandonedCount += 1 } else { unfinishedCount += 1 }
    names[task.name, default: 0] += 1
    firstDate = min(firstDate, failure.date)
    if failure.date > lastDate { (lastDate, reason) = (failure.date, failure.reason) }
    if samples.count < Self.maxSampleCount { samples.append(task.id) }
  }
}

/// The text of a failure without what differs from one failure to the next.
///
/// Numbers, hexadecimal numbers and UUIDs become `#`. Mail addresses, paths and the paths of URLs
/// become `…`, and so does quoted text. Spaces and line breaks become one space. So
/// `no route to 10.0.0.7 after 31 s` and `no route to 10.0.0.12 after 8 s` have the same shape,
/// `no route to #.#.#.# after # s`.
///
/// Only the first 4,000 Unicode scalars of the text count, and the first 200 of the result.
public struct FailureShape: Sendable, Hashable, CustomStringConvertible {
  private static let maxLength = 200
  private static let maxTextLength = 4_000

  private let text: ExactText

  /// The shape as text.
  public var description: String { text.text }

  /// Makes the shape of a failure's text.
  public init(of reason: String) {
    var scanner = ShapeScanner(reason.unicodeScalars.prefix(Self.maxTextLength))
    text = ExactText(scanner.shape(ofLength: Self.maxLength))
  }

  /// A number that is the same for equal shapes in all versions and on all platforms, in
  /// hexadecimal digits.
  ///
  /// It is the 64-bit FNV-1a hash of ``description``
  /// (G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake: The FNV Non-Cryptographic Hash Algorithm).
  public var id: String { Hexadecimal.text(description.utf8.fnv1a, digits: 16) }
}

/// Replaces the variable parts of a text, word by word, in one pass.
private struct ShapeScanner {
  private static let quotes: [Unicode.Scalar: Unicode.Scalar] = [
    "'": "'", "\"": "\"", "`": "`", "“": "”", "‘": "’", "«": "»",
  ]

  private let scalars: Substring.UnicodeScalarView
  private var index: String.UnicodeScalarView.Index
  private var shape = String.UnicodeScalarView()

  init(_ text: Substring.UnicodeScalarView) {
    scalars = text
    index = scalars.startIndex
  }

  mutating func shape(ofLength limit: Int) -> String {
    var length = 0
    while index < scalars.endIndex, length < limit {
      let part = nextPart()
      shape.append(contentsOf: part.prefix(limit - length))
      length += part.count
    }
    return String(shape)
  }

  private mutating func nextPart() -> [Unicode.Scalar] {
    let first = scalars[index]
    if first.properties.isWhitespace {
      skip { $0.properties.isWhitespace }
      return shape.isEmpty || index == scalars.endIndex ? [] : [" "]
    }
    if let end = Self.quotes[first], startsWord, let close = indexOfQuote(end) {
      index = scalars.index(after: close)
      return [first, "…", end]
    }
    let start = index
    skip { !$0.properties.isWhitespace && Self.quotes[$0] == nil }
    // A quotation mark within a word, such as an apostrophe, belongs to the word.
    if start == index { index = scalars.index(after: index) }
    return Self.shape(ofWord: scalars[start..<index])
  }

  /// Whether the character before the index does not belong to a word.
  private var startsWord: Bool {
    guard index > scalars.startIndex else { return true }
    let last = scalars[scalars.index(before: index)]
    return !last.isLetter && !last.isDecimalDigit
  }

  /// Returns the index of the quotation mark that ends the quoted text, on the same line.
  private func indexOfQuote(_ end: Unicode.Scalar) -> String.UnicodeScalarView.Index? {
    let line = scalars[scalars.index(after: index)...].prefix { $0 != "\n" }
    return line.firstIndex(of: end)
  }

  private mutating func skip(while isSkipped: (Unicode.Scalar) -> Bool) {
    index = scalars[index...].prefix(while: isSkipped).endIndex
  }

  private static func shape(ofWord word: Substring.UnicodeScalarView) -> [Unicode.Scalar] {
    if let scheme = word.firstRange(of: "://".unicodeScalars) {
      let host = word[scheme.upperBound...].prefix { $0 != "/" && $0 != "?" && $0 != "#" }
      let hasPath = host.endIndex < word.endIndex
      return shape(ofNumbersIn: word[..<host.endIndex]) + (hasPath ? ["/", "…"] : [])
    }
    if isMailAddress(word) { return ["…"] }
    let slashes = word.count { $0 == "/" }
    if slashes > 1 || slashes == 1 && word.first == "/" { return ["…"] }
    return shape(ofNumbersIn: word)
  }

  private static func isMailAddress(_ word: Substring.UnicodeScalarView) -> Bool {
    guard let at = word.firstIndex(of: "@"), at > word.startIndex else { return false }
    return word[at...].contains(".")
  }

  /// Replaces each number, each UUID, and each run of at least six hexadecimal digits that has a
  /// decimal digit.
  private static func shape(
    ofNumbersIn word: Substring.UnicodeScalarView
  ) -> [Unicode.Scalar] {
    var result: [Unicode.Scalar] = []
    var rest = word
    while let first = rest.first {
      if let count = numberLength(at: rest, startsWord: !(result.last?.isLetter ?? false)) {
        result.append("#")
        rest = rest.dropFirst(count)
      } else {
        let letters = rest.prefix(while: \.isLetter)
        result += letters.isEmpty ? [first] : Array(letters)
        rest = rest.dropFirst(max(letters.count, 1))
      }
    }
    return result
  }

  /// Returns the length of the number at the start of a text; `nil` if there is none.
  private static func numberLength(
    at text: Substring.UnicodeScalarView,
    startsWord: Bool
  ) -> Int? {
    if text.starts(with: "0x".unicodeScalars) || text.starts(with: "0X".unicodeScalars) {
      let digits = text.dropFirst(2).prefix(while: \.properties.isASCIIHexDigit)
      if !digits.isEmpty { return 2 + digits.count }
    }
    // A SHA-512 has 128 digits.
    let run = text.prefix(128).prefix(while: \.properties.isASCIIHexDigit)
    if run.count == 8, TaskID(String(text.prefix(TaskID.textLength))) != nil {
      return TaskID.textLength
    }
    let endsWord = !(text[run.endIndex...].first?.isLetter ?? false)
    if startsWord, endsWord, run.count >= 6, run.contains(where: \.isDecimalDigit) {
      return run.count
    }
    let number = text.prefix(while: \.isDecimalDigit)
    return number.isEmpty ? nil : number.count
  }
}

extension Unicode.Scalar {
  fileprivate var isLetter: Bool { properties.isAlphabetic }
  fileprivate var isDecimalDigit: Bool { ("0"..."9").contains(self) }
}
