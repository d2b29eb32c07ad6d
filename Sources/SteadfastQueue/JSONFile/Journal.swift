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

  private let storage: any JournalStorage
  private var nextSequence: UInt64
  private var firstUnsynced: UInt64
  private var size: Int
  private var poison: SystemCallError?

  // MARK: Opening

  /// Opens the file, or makes it, and returns the tasks in it.
  ///
  /// Every step may be repeated after a crash in its midst.
  static func open(
    _ storage: any JournalStorage
  ) throws -> (journal: Journal, table: TaskTable) {
    let bytes = try storage.read() ?? []
    guard !bytes.isEmpty else { return (try create(storage), TaskTable()) }
    let contents = try JournalReader.read(bytes)
    try storage.open()
    do {
      if contents.goodSize < bytes.count { try storage.truncate(to: contents.goodSize) }
      // After a flush that failed, the system may take the last lines for stored though they are
      // not. Written once more, they are stored by the next flush.
      try storage.overwrite(
        bytes[contents.unsyncedOffset..<contents.goodSize],
        at: contents.unsyncedOffset
      )
      try storage.synchronize()
      try storage.synchronizeFolder()
    } catch {
      storage.close()
      throw error
    }
    var journal = Journal(storage, nextSequence: contents.nextSequence, size: contents.goodSize)
    if contents.interruptionCount > 0 {
      // Whoever reads the file later must know it too where the lines that follow rest on it.
      do {
        try journal.append([JournalBody(.interruption)])
        try journal.synchronize()
      } catch {
        storage.close()
        throw error
      }
    }
    return (journal, contents.table)
  }

  private static func create(_ storage: any JournalStorage) throws -> Journal {
    var header: [UInt8] = []
    let body = try JournalBody(.header(version: JournalEntry.formatVersion, generation: 1))
    JournalLine.append(body, sequence: 0, firstUnsynced: 0, to: &header)
    try storage.replace(with: header)
    try storage.open()
    return Journal(storage, nextSequence: 1, size: header.count)
  }

  private init(_ storage: any JournalStorage, nextSequence: UInt64, size: Int) {
    self.storage = storage
    self.nextSequence = nextSequence
    firstUnsynced = nextSequence
    self.size = size
  }

  // MARK: Writing

  /// Appends lines: all of them or, if it throws `refused`, none.
  mutating func append(_ bodies: [JournalBody]) throws(Failure) {
    if let poison { throw .poisoned(poison) }
    guard !bodies.isEmpty else { return }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(bodies.reduce(0) { $0 + $1.bytes.count + 64 })
    for (offset, body) in bodies.enumerated() {
      JournalLine.append(
        body,
        sequence: nextSequence + UInt64(offset),
        firstUnsynced: firstUnsynced,
        to: &bytes
      )
    }
    do {
      var rest = bytes[...]
      while !rest.isEmpty { rest = rest.dropFirst(try storage.append(rest)) }
    } catch {
      try takeBack(error)
    }
    nextSequence += UInt64(bodies.count)
    size += bytes.count
  }

  private mutating func takeBack(_ error: SystemCallError) throws(Failure) {
    do {
      try storage.truncate(to: size)
    } catch {
      poison = error
      throw .poisoned(error)
    }
    throw .refused(error)
  }

  /// Makes all lines durable.
  ///
  /// A flush that fails is never tried again: the system may have dropped what it could not write,
  /// and would say that all is well.
  mutating func synchronize() throws(Failure) {
    if let poison { throw .poisoned(poison) }
    do {
      try storage.synchronize()
    } catch {
      poison = error
      throw .poisoned(error)
    }
    firstUnsynced = nextSequence
  }

  /// Ends the use of the file: what is there is made durable, and a last line says so.
  mutating func close() throws {
    defer { storage.close() }
    try synchronize()
    try append([JournalBody(.seal)])
    try synchronize()
  }

  /// Ends the use of the file and deletes it; poisoned or not.
  mutating func delete() throws {
    defer { storage.close() }
    try storage.delete()
    try storage.synchronizeFolder()
  }
}
