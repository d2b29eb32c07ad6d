import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The real file system behind a journal.
///
/// A file is opened only if it is what this code would have made: a regular file, not a symbolic
/// link, that not every user may write. While a file is open, it is locked too. The lock file
/// beside it is not enough: a user may delete it to tidy up, and the next opener would make and
/// lock another one.
final class FileStorage: JournalStorage {
  private let path: String
  private let options: JSONFileStore.Options
  /// The file that was opened, made or renamed under each name.
  private let identities = Mutex<[JournalFileName: FileIdentity]>([:])
  /// The open folder, from when it is opened until it is flushed.
  private let folder = Mutex<FolderDescriptor?>(nil)

  init(path: String, _ options: JSONFileStore.Options = JSONFileStore.Options()) {
    self.path = path
    self.options = options
  }

  var isSizeLimited: Bool { SystemCall.limitsFileSizes }

  func path(_ name: JournalFileName) -> String {
    switch name {
    case .journal: path
    case .replacement: path + ".new"
    case .copy(let number): path + ".damaged-\(number)"
    case .torn(let number): path + ".torn-\(number)"
    case .stranger(let number): path + ".new-\(number)"
    }
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    do {
      return try openInPlace(name) { () throws(FileOpeningError) in
        try openLocked(name, O_RDWR)
      }
    } catch .systemCall(let error) where error.number == ENOENT {
      return nil
    }
  }

  /// Opens a file, and opens it again if it has lost its name by then.
  ///
  /// A holder of the lock may have put another file in its place before it gave this one up.
  func openInPlace<File>(
    _ name: JournalFileName,
    _ open: () throws(FileOpeningError) -> File
  ) throws(FileOpeningError) -> File {
    for _ in 0..<Self.mostAttempts {
      let file = try open()
      do throws(SystemCallError) {
        if case .there = try place(of: name) { return file }
      } catch {
        throw .systemCall(error)
      }
    }
    throw .unstable
  }

  /// The greatest number of times that a file is opened, if it is another one each time.
  static var mostAttempts: Int { 100 }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    let file = try openLocked(name, O_RDWR | O_CREAT | O_EXCL)
    // Only the journal that is open says whose files these are: another one may be at its path.
    let journal = identities.withLock { $0[.journal] }
    do { try file.protectNew(like: journal, at: path(.journal)) } catch { throw .systemCall(error) }
    return file
  }

  private func openLocked(
    _ name: JournalFileName,
    _ flags: Int32
  ) throws(FileOpeningError) -> OpenFile {
    let (descriptor, hasOtherNames) = try Self.openAsItIs(path(name), flags)
    let file = OpenFile(descriptor, options, hasOtherNames: hasOtherNames)
    guard try Self.lock(descriptor) else { throw .inUse }
    let identity: FileIdentity
    do { identity = try FileIdentity(ofDescriptor: descriptor) } catch { throw .systemCall(error) }
    identities.withLock { $0[name] = identity }
    return file
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    guard systemRename(path(name), path(other)) == 0 else { throw .last("rename") }
    identities.withLock { $0[other] = $0.removeValue(forKey: name) }
  }

  func place(of name: JournalFileName) throws(SystemCallError) -> JournalPlace {
    guard let identity = identities.withLock({ $0[name] }),
      let (found, size) = try FileIdentity.lookUp(path(name)), found == identity
    else { return .elsewhere }
    return .there(size: size)
  }

  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool {
    try FileIdentity.lookUp(path(name) + ".lock") != nil
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    guard unsafe unlink(path(name)) == 0 || errno == ENOENT else { throw .last("unlink") }
  }

  func openFolder() throws(SystemCallError) {
    let opened = FolderDescriptor(
      try Self.openDescriptor(Self.folder(of: path), O_RDONLY | O_DIRECTORY)
    )
    folder.withLock { $0 = opened }
  }

  func synchronizeFolder() throws(SystemCallError) {
    if folder.withLock({ $0 == nil }) { try openFolder() }
    guard let opened = folder.withLock({ $0.take() }) else { return }
    try opened.synchronize()
  }
}

/// A folder that is open for a flush.
private final class FolderDescriptor: Sendable {
  private let descriptor: Int32

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  deinit { FileStorage.close(descriptor) }

  func synchronize() throws(SystemCallError) {
    try SystemCall.flush(descriptor, "fsync of the folder")
  }
}

// A method above has the same name as this call.
private func systemRename(_ path: String, _ other: String) -> Int32 {
  unsafe rename(path, other)
}
