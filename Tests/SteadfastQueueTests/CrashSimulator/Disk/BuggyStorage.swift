import Synchronization

@testable import SteadfastQueue

/// A storage with a bug.
final class BuggyStorage: JournalStorage {
  private struct State {
    /// The new file that isn't renamed yet, and whether a flush of that file was postponed.
    var newFile: (file: any JournalFile, needsFlush: Bool)?
    /// Whether an existing file was opened.
    var hasOpened = false
    var hasRenamed = false
    var flushCount = 0
  }

  let bug: PlantedBug
  private let storage: any JournalStorage
  private let state = Mutex(State())

  init(_ storage: any JournalStorage, _ bug: PlantedBug) {
    self.storage = storage
    self.bug = bug
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    if bug == .leftoverTrusted, name == .journal, let leftover = try storage.open(.replacement) {
      leftover.close()
      try? storage.rename(.replacement, to: .journal)
    }
    guard let file = try storage.open(name) else { return nil }
    state.withLock { $0.hasOpened = true }
    return BuggyFile(file, of: self, isNew: false)
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    let file = try storage.create(name)
    state.withLock { $0.newFile = (file, false) }
    return BuggyFile(file, of: self, isNew: true)
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    let new = state.withLock { state in
      defer { state.newFile = nil }
      state.hasRenamed = true
      return state.newFile
    }
    switch bug {
    case .unlinkedFirst:
      try storage.remove(other)
      try storage.synchronizeFolder()
    case .copiedInPlace:
      if let new, let old = try? storage.open(other) {
        try old.truncate(to: 0)
        try old.writeAll(try new.file.read(try new.file.size(), at: 0)[...], at: 0)
        try old.synchronize()
      }
    default: break
    }
    try storage.rename(name, to: other)
    if bug == .flushAfterRename, let new, new.needsFlush {
      try storage.synchronizeFolder()
      try new.file.synchronize()
    }
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    if bug != .noSweep { try storage.remove(name) }
  }

  func openFolder() throws(SystemCallError) { try storage.openFolder() }

  func synchronizeFolder() throws(SystemCallError) {
    let (hasOpened, hasRenamed) = state.withLock { ($0.hasOpened, $0.hasRenamed) }
    switch bug {
    case .noFolderFlush: return
    case .newNameNotFlushed where hasRenamed && !hasOpened: return
    case .compactedNameNotFlushed where hasRenamed && hasOpened: return
    case .openingFolderNotFlushed where !hasRenamed: return
    case .folderErrorIgnored: try? storage.synchronizeFolder()
    default: try storage.synchronizeFolder()
    }
  }

  /// Postpones the flush if the file isn't renamed yet, and returns whether it was postponed.
  func postponeFlush(of file: any JournalFile) -> Bool {
    state.withLock { state in
      guard let new = state.newFile, new.file === file else { return false }
      state.newFile = (file, true)
      return true
    }
  }

  /// Counts a flush, and returns whether it is the second, the fourth and so on.
  func takeEvenFlush() -> Bool {
    state.withLock { state in
      state.flushCount += 1
      return state.flushCount.isMultiple(of: 2)
    }
  }
}
