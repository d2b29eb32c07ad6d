import Synchronization

/// A correct program: all that its tasks share is behind one Mutex, for which they contend.
@main enum ContendedMutex {
  static let counter = Mutex(0)

  static func main() async {
    await withDiscardingTaskGroup { group in
      for _ in 0..<4 {
        group.addTask {
          for _ in 0..<4_000 { counter.withLock { $0 += 1 } }
        }
      }
    }
    precondition(counter.withLock { $0 } == 16_000, "the lock itself is broken")
  }
}
