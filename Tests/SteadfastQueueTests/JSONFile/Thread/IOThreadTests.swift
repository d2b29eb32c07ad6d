import Dispatch
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

@Suite struct IOThreadTests {
  @Test func `a thread performs delayed jobs when they are due, and other jobs until then`()
    async throws
  {
    let thread = try IOThread()
    let allAreAdded = DispatchSemaphore(value: 0)
    thread.add { allAreAdded.wait() }
    let order = await withCheckedContinuation {
      (continuation: CheckedContinuation<[String], Never>) in
      let log = Log<String>()
      @Sendable func note(_ job: String) {
        log.add(job)
        if log.entries.count == 3 { continuation.resume(returning: log.entries) }
      }
      thread.add(after: .seconds(3600)) { note("not yet") }
      thread.add(after: .milliseconds(20)) { note("late") }
      thread.add(after: .milliseconds(1)) { note("soon") }
      thread.add { note("at once") }
      allAreAdded.signal()
    }
    // How long it takes to add the jobs is unknown, so the immediate jobs may run at any position.
    #expect(order.filter { $0 != "at once" } == ["soon", "late"])
  }

  @Test func `signals to the process go to its other threads`() async throws {
    let thread = try IOThread()
    let (blocked, left) = await withCheckedContinuation { continuation in
      thread.add {
        var signals = sigset_t()
        _ = unsafe pthread_sigmask(SIG_BLOCK, nil, &signals)
        func blocked(_ numbers: [Int32]) -> [Int32] {
          numbers.filter { unsafe sigismember(&signals, $0) == 1 }
        }
        let process = [SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGCHLD, SIGXFSZ, SIGPIPE]
        continuation.resume(
          returning: (blocked(process) == process, blocked([SIGSEGV, SIGBUS, SIGILL, SIGFPE]))
        )
      }
    }
    #expect(blocked)
    #expect(left == [])
  }

  @Test func `a job that yields its turn lets other jobs run at the same time`() async throws {
    let thread = try IOThread()
    let order = await withCheckedContinuation { continuation in
      let log = Log<String>()
      thread.add {
        let other = DispatchSemaphore(value: 0)
        thread.add {
          log.add("second")
          other.signal()
        }
        thread.performBesideOtherJobs { other.wait() }
        log.add("first")
        thread.add { continuation.resume(returning: log.entries) }
      }
    }
    #expect(order == ["second", "first"])
  }

  @Test
  func `a caller does its own job if the thread has no job, and wakes the thread for the next job`()
    async throws
  {
    let thread = try IOThread()
    let log = Log<Bool>()
    // The thread polls for the next job after some jobs, and sleeps after others.
    for _ in 0..<200 {
      await withCheckedContinuation { continuation in
        let isDone = thread.performOnCallerIfIdle { thread.add { continuation.resume() } }
        log.add(isDone)
        if !isDone { thread.add { continuation.resume() } }
      }
    }
    #expect(log.entries.contains(true))
  }
}
