/// The lock for other stores of this package.
extension FileLock {
  /// Why a store can't have the lock.
  package struct Refusal: Error {
    /// Whether another store has it, in this process or another one.
    package let isHeld: Bool
    /// What is wrong, for a person to read.
    package let reason: String
  }

  /// Takes the lock of a store at a path, which is held until the last reference is gone.
  ///
  /// The lock file has `.lock` behind the path. A shared lock keeps only those out that are not.
  package static func acquire(
    forStoreAt path: String,
    isShared: Bool
  ) throws(Refusal) -> FileLock {
    let file = "its lock file, \(path).lock"
    do throws(Failure) {
      return try acquire(for: path, isShared: isShared)
    } catch {
      switch error {
      case .heldByThisProcess:
        throw Refusal(isHeld: true, reason: "another store of this process uses it")
      case .held(let process):
        let name = process.map { "the process \($0)" } ?? "another process"
        throw Refusal(isHeld: true, reason: "\(name) uses it")
      case .systemCall(let error):
        throw Refusal(isHeld: false, reason: "\(file), can't be locked: \(error)")
      case .opening(let error):
        throw Refusal(isHeld: false, reason: "\(file), can't be opened: \(error)")
      }
    }
  }
}
