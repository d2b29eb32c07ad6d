#if SQLite
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Testing

@testable import SteadfastSQLite

@Suite(.timeLimit(.minutes(5))) struct JobQueueTests {
  @Test(arguments: 1...3)
  func `when a job queue ends, all threads that wait for its jobs end`(_ count: Int) async throws {
    let jobs = JobQueue()
    let group = DispatchGroup()
    for _ in 0..<count {
      try SystemThread.start(in: group) { while case .jobs = jobs.waitForJobs(all: false) {} }
    }
    jobs.end()
    await withCheckedContinuation { continuation in
      group.notify(queue: .global()) { continuation.resume() }
    }
  }
}
#endif
