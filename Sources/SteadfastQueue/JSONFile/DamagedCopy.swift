#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The copy of a damaged file, under a name that was free.
enum DamagedCopy {
  /// Makes a copy and its name durable, and returns its number; one that is there already is taken.
  ///
  /// It is whole before it has the name, and no file that has such a name is touched.
  static func keep(
    _ bytes: [UInt8],
    in storage: any JournalStorage
  ) throws -> (number: Int, isNew: Bool) {
    var number = 1
    while try !claim(.copy(number), in: storage) {
      if try take(.copy(number), bytes, in: storage) { return (number, false) }
      number += 1
    }
    do {
      try write(bytes, in: storage)
      // What it replaces is the empty file that has kept the name free.
      try storage.rename(.replacement, to: .copy(number))
      try storage.synchronizeFolder()
    } catch {
      // What can't be removed now is removed by the next opening, or is whole and does no harm.
      try? storage.remove(.replacement)
      try? storage.remove(.copy(number))
      throw error
    }
    return (number, true)
  }

  /// Makes an empty file of a name; whether the name was free.
  private static func claim(
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

  /// Makes a copy that is there durable; whether it is one.
  private static func take(
    _ name: JournalFileName,
    _ bytes: [UInt8],
    in storage: any JournalStorage
  ) throws -> Bool {
    // A link, or a file of somebody else, is none.
    guard let file = try? storage.open(name) else { return false }
    defer { file.close() }
    guard try file.size() == bytes.count, try file.read(bytes.count, at: 0) == bytes else {
      return false
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return true
  }

  private static func write(_ bytes: [UInt8], in storage: any JournalStorage) throws {
    try storage.remove(.replacement)
    let file = try storage.create(.replacement)
    defer { file.close() }
    try file.writeAll(bytes[...], at: 0)
    try file.synchronize()
  }
}
