#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// A copy of the part of a file that is about to be lost, under a name that was free.
enum AsideCopy {
  /// How many bytes are copied at a time.
  private static let partSize = 1 << 20

  /// Makes a durable copy with a durable name, and returns its number.
  ///
  /// An identical copy that is there already is used. A new copy is complete before it gets its
  /// name. No other file that has such a name is changed.
  static func keep(
    _ source: JournalSource,
    _ range: Range<Int>,
    as name: (Int) -> JournalFileName,
    in storage: any JournalStorage
  ) throws -> (number: Int, isNew: Bool) {
    var number = 1
    while try !claim(name(number), in: storage) {
      if try take(name(number), source, range, in: storage) { return (number, false) }
      number += 1
    }
    do {
      try write(source, range, in: storage)
      try storage.openFolder()
      // This replaces the empty file that kept the name free.
      try storage.rename(.replacement, to: name(number))
      try storage.synchronizeFolder()
    } catch {
      // The next opening removes a replacement that can't be removed now. A whole copy does no
      // harm.
      try? storage.removeOwn(.replacement)
      try? storage.removeOwn(name(number))
      throw error
    }
    return (number, true)
  }

  /// Creates an empty file with a name, if the name is free.
  ///
  /// - Returns: Whether the name was free.
  static func claim(
    _ name: JournalFileName,
    in storage: any JournalStorage
  ) throws(FileOpeningError) -> Bool {
    do throws(FileOpeningError) {
      try storage.create(name).close()
      return true
    } catch {
      guard case .systemCall(let cause) = error, cause.number == EEXIST else { throw error }
      return false
    }
  }

  /// Makes an existing file durable, if it is a copy of the range.
  ///
  /// - Returns: Whether it is such a copy.
  private static func take(
    _ name: JournalFileName,
    _ source: JournalSource,
    _ range: Range<Int>,
    in storage: any JournalStorage
  ) throws -> Bool {
    // What can't be opened is no copy: a link, for instance, or another user's file.
    guard let file = try? storage.open(name) else { return false }
    defer { file.close() }
    guard try file.size() == range.count else { return false }
    for part in parts(of: range) {
      let bytes = try file.read(part.count, at: part.lowerBound - range.lowerBound)
      guard try bytes == source.read(part) else { return false }
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return true
  }

  private static func write(
    _ source: JournalSource,
    _ range: Range<Int>,
    in storage: any JournalStorage
  ) throws {
    try Leftover.clear(storage, beside: source)
    let file = try storage.create(.replacement)
    defer { file.close() }
    for part in parts(of: range) {
      try file.writeAll(try source.read(part)[...], at: part.lowerBound - range.lowerBound)
    }
    try file.synchronize()
  }

  private static func parts(of range: Range<Int>) -> [Range<Int>] {
    stride(from: range.lowerBound, to: range.upperBound, by: partSize).map {
      $0..<min(range.upperBound, $0 + partSize)
    }
  }
}
