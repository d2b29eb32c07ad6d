/// The file as a sequence of lines: opens it, appends to it, makes it durable.
///
/// Used by one thread at a time. After a failure that leaves open what is on the disk it takes no
/// further calls.
struct Journal {
  /// What went wrong, and whether anything may be stored of it.
  enum Failure: Error, Equatable {
    /// Nothing was stored.
    case refused(SystemCallError)
    /// It is open what was stored; now and from now on.
    case poisoned(SystemCallError)
  }

  private let file: any JournalFile
  private var nextSequence: UInt64
  private var firstUnsynced: UInt64
  private var size: Int
  private var poison: SystemCallError?

  init(_ file: any JournalFile, nextSequence: UInt64, size: Int) {
    self.file = file
    self.nextSequence = nextSequence
    firstUnsynced = nextSequence
    self.size = size
  }

  /// Appends batches of lines: all of them or, if it throws `refused`, none.
  ///
  /// After a crash each batch is there as a whole or not at all.
  mutating func append(_ batches: [[JournalBody]]) throws(Failure) {
    if let poison { throw .poisoned(poison) }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(batches.joined().reduce(0) { $0 + $1.bytes.count + 64 })
    var sequence = nextSequence
    for batch in batches {
      for (index, body) in batch.enumerated() {
        JournalLine.append(
          body,
          sequence: sequence,
          firstUnsynced: firstUnsynced,
          isContinued: index + 1 < batch.count,
          to: &bytes
        )
        sequence += 1
      }
    }
    do {
      try file.writeAll(bytes[...], at: size)
    } catch {
      try takeBack(error)
    }
    nextSequence = sequence
    size += bytes.count
  }

  /// Removes what a failed write has left, for good: a power cut must not bring it back.
  private mutating func takeBack(_ error: SystemCallError) throws(Failure) {
    do {
      try file.truncate(to: size)
    } catch {
      poison = error
      throw .poisoned(error)
    }
    try synchronize()
    throw .refused(error)
  }

  /// Makes all lines durable.
  ///
  /// A flush that fails is never tried again: the system may have dropped what it could not write,
  /// and would say that all is well.
  mutating func synchronize() throws(Failure) {
    if let poison { throw .poisoned(poison) }
    do {
      try file.synchronize()
    } catch {
      poison = error
      throw .poisoned(error)
    }
    firstUnsynced = nextSequence
  }

  /// Ends the use of the file: what is there is made durable, and a last line says so.
  mutating func close() throws {
    defer { file.close() }
    try synchronize()
    try append([[JournalBody(.seal)]])
    try synchronize()
  }

  /// Gives the file up as it is.
  func abandon() { file.close() }
}
