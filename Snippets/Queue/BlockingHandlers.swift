//! Handlers that compute or block for long, on threads of their own.

import Dispatch
import SteadfastQueue

/// A film that is to be converted.
struct Film: TaskPayload { var title: String }

/// Stands for a library that computes for long, and suspends at no point.
func convert(_ film: Film) -> Int {
  (0..<1_000_000).reduce(film.title.count) { ($0 &* 31) ^ $1 }
}

// snippet.executor
/// Runs code that blocks, on threads that nothing else needs.
final class BlockingExecutor: TaskExecutor {
  private let queue = DispatchQueue(
    label: "blocking work",
    attributes: .concurrent
  )

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
// snippet.end

let queue = TaskQueue()

// snippet.handler
let executor = BlockingExecutor()
await queue.register(Film.self, maxConcurrentTasks: 2) { film, _ in
  await withTaskExecutorPreference(executor) { convert(film) }
}
// snippet.end

let film = try await queue.enqueue(Film(title: "Safety Last!"))
try await queue.runAvailable()
print("\(film.id): \(try await film.outcome())")
