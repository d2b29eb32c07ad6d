import Synchronization

/// A wrong program: of the tasks that share a variable, only every other one takes the lock.
@main enum Race {
  static let lock = Mutex(())
  nonisolated(unsafe) static var counter = 0

  static func main() async {
    await withDiscardingTaskGroup { group in
      for number in 0..<4 {
        group.addTask {
          for _ in 0..<50_000 {
            if number.isMultiple(of: 2) { lock.withLock { _ in counter += 1 } } else { counter += 1 }
          }
        }
      }
    }
  }
}
