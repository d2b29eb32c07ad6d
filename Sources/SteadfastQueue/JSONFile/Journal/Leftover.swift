/// A file that has the replacement's name before a replacement is made.
///
/// A crash leaves there what was being written, which is removed. A file that another program put
/// there is not removed. If it is in use, or is plainly not a journal, it is in the way, and an
/// error says so. Any other file that no crash has left gets a name of its own.
struct Leftover {
  /// How many bytes are compared at a time.
  private static let partSize = 1 << 20

  private let file: any JournalFile
  private let size: Int

  /// Makes the name free, or throws, for instance ``FileOpeningError/obstructed(_:)``.
  ///
  /// A comparison with the bytes of the present journal, if there is one, shows what the file is.
  /// `copyStart` is the offset in the journal at which an unfinished copy of its bytes may begin.
  static func clear(
    _ storage: any JournalStorage,
    beside journal: JournalSource?,
    copyStart: Int = 0
  ) throws {
    guard let file = try open(storage) else { return }
    defer { file.close() }
    guard try !storage.hasLockFile(.replacement) else {
      throw FileOpeningError.obstructed("it is the file of another queue, as its lock file says")
    }
    let leftover = Leftover(file: file, size: try file.size())
    if try leftover.wasLeftByCrash(beside: journal)
      || leftover.isPart(of: journal, from: copyStart)
    {
      return try storage.remove(.replacement)
    }
    var number = 1
    while try !AsideCopy.claim(.stranger(number), in: storage) { number += 1 }
    try storage.rename(.replacement, to: .stranger(number))
  }

  private static func open(
    _ storage: any JournalStorage
  ) throws(FileOpeningError) -> (any JournalFile)? {
    do {
      return try storage.open(.replacement)
    } catch .unsafe(let reason, _) {
      throw .obstructed(reason)
    } catch .inUse {
      throw .obstructed("it is in use by another queue")
    } catch {
      throw error
    }
  }

  /// Returns whether this library wrote the file, and nothing is lost with it.
  private func wasLeftByCrash(beside journal: JournalSource?) throws -> Bool {
    let start = try file.read(min(size, JournalLine.maxEnvelopeLength * 4), at: 0)
    guard let journal, journal.count > 0 else {
      // A new file has nothing but its header.
      return isTorn(start) || Self.header(in: start)?.length == size
    }
    if isTorn(start) { return true }
    if let header = Self.header(in: start) {
      let first = try journal.read(0..<min(journal.count, JournalLine.maxEnvelopeLength * 4))
      let generation = Self.header(in: first)?.generation
      if let generation, header.generation == generation + (generation < .max ? 1 : 0) {
        return try !wasInUse()
      }
    }
    return try isPart(of: journal, from: 0)
  }

  /// Returns whether the file was in use as a queue's file.
  ///
  /// A compaction ends with a line that says so, and seals nothing. So a file that goes on after
  /// such a line, or has a seal, is a queue's file that was moved here.
  private func wasInUse() throws -> Bool {
    var (bytes, position, isCompacted) = ([UInt8](), 0, false)
    while bytes.count <= JournalLine.maxLength {
      let part = try file.read(min(Self.partSize, size - position), at: position)
      guard !part.isEmpty else { return false }
      position += part.count
      bytes += part
      var start = 0
      while let end = bytes.lineFeed(from: start) {
        guard let line = JournalLine(bytes, start..<end) else { return false }
        let body = bytes[line.body]
        if isCompacted || body.starts(with: JournalBody.seal.bytes) { return true }
        isCompacted = body.starts(with: #""k":"compacted""#.utf8)
        start = end + 1
      }
      bytes.removeFirst(start)
    }
    return false
  }

  /// Returns whether the file has nothing but the beginning of a header.
  private func isTorn(_ start: [UInt8]) -> Bool {
    start.count == size && start.lineFeed(from: 0) == nil
      && (start.starts(with: JournalLine.prefix) || JournalLine.prefix.starts(with: start))
  }

  /// Returns the generation in the first line, and the length of that line with its line feed.
  static func header(in start: [UInt8]) -> (generation: Int, length: Int)? {
    guard let end = start.lineFeed(from: 0), let line = JournalLine(start, 0..<end) else {
      return nil
    }
    var decoder = JournalDecoder(start)
    guard case .header(_, let generation)? = try? decoder.entry(of: line) else { return nil }
    return (generation, end + 1)
  }

  /// Returns whether the file, zeros aside, is also in the journal from `offset` on.
  ///
  /// Such a file is an unfinished copy, or what a power cut has left of one.
  private func isPart(of journal: JournalSource?, from offset: Int) throws -> Bool {
    for start in stride(from: 0, to: size, by: Self.partSize) {
      let bytes = try file.read(min(Self.partSize, size - start), at: start)
      let place = offset + start
      let end = min(journal?.count ?? 0, place + bytes.count)
      let other = place < end ? try journal?.read(place..<end) ?? [] : []
      let isEqual = bytes.indices.allSatisfy { index in
        bytes[index] == 0 || index < other.count && bytes[index] == other[index]
      }
      guard isEqual else { return false }
    }
    return true
  }
}
