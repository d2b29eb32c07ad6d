/// A wrong program: its tasks share a variable behind no lock.
@main enum Race {
  nonisolated(unsafe) static var counter = 0

  static func main() async {
    await withDiscardingTaskGroup { group in
      for _ in 0..<4 {
        group.addTask {
          for _ in 0..<50_000 { counter += 1 }
        }
      }
    }
  }
}
