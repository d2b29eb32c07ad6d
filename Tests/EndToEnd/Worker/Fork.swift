import Dispatch
import SteadfastQueue
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

/// A forked child, which continues with the parent's queue.
enum Fork {
  /// Starts a child that uses the parent's queue, and prints the result of each of its calls.
  static func useInChild(_ session: Session) throws {
    let child = try fork { makeCalls(on: session) }
    var status: Int32 = 0
    guard unsafe waitpid(child, &status, 0) == child, status == 0 else {
      throw Misuse("the child has exited with the status \(status)")
    }
  }

  /// Starts a child that holds a copy of all descriptors, and exits when this process ends.
  static func startWaitingChild() throws {
    var ends: [Int32] = [-1, -1]
    guard unsafe pipe(&ends) == 0 else { throw Misuse("can't create a pipe") }
    let (reading, writing) = (ends[0], ends[1])
    _ = try fork {
      // Nothing is ever written, so the read returns when the parent has ended.
      close(writing)
      var byte: UInt8 = 0
      _ = unsafe read(reading, &byte, 1)
    }
    close(reading)
  }

  /// Calls the system's `fork`, which Swift hides because the child has only the calling thread.
  private static func fork(_ body: () -> Void) throws -> Int32 {
    guard let symbol = unsafe dlsym(dlopen(nil, RTLD_NOW), "fork") else {
      throw Misuse("fork is unavailable")
    }
    let fork = unsafe unsafeBitCast(symbol, to: (@convention(c) () -> Int32).self)
    let child = fork()
    if child == 0 {
      body()
      _exit(0)
    }
    guard child > 0 else { throw Misuse("fork failed") }
    return child
  }

  private static func makeCalls(on session: Session) {
    let calls: [(name: String, call: @Sendable () async throws -> Void)] = [
      ("enqueue", { try await session.enqueue(Job(title: "child", plan: .succeed, size: 9)) }),
      ("perform", { try await session.performAvailable() }),
      ("list", { try await session.printTasks() }),
      ("open", { try await Session(path: session.path, isFlushed: true).open() }),
      ("destroy", { try await session.destroy() }),
      ("close", { try await session.close() }),
    ]
    for (name, call) in calls {
      printLine("child \(name) \(InlineExecutor.result(ofRunning: call) ?? "hangs")")
    }
  }
}

/// An executor that runs Swift tasks on the thread that waits for the tasks, since a forked child
/// has no other thread.
private final class InlineExecutor: TaskExecutor {
  private let jobs = Mutex<[UnownedJob]>([])
  private let changed = DispatchSemaphore(value: 0)

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    jobs.withLock { $0.append(job) }
    changed.signal()
  }

  /// Returns the result of a call; `nil` if the call hangs.
  static func result(ofRunning call: @escaping @Sendable () async throws -> Void) -> String? {
    let executor = InlineExecutor()
    let result = Log()
    let task = Task(executorPreference: executor) {
      do {
        try await call()
        result.text.withLock { $0 = "succeeds" }
      } catch {
        result.text.withLock { $0 = "\(Fact.word(for: error)) \(error)" }
      }
    }
    // A store that the child opens has its own thread, which can resume the call.
    while result.text.withLock({ $0 == nil }) {
      guard executor.changed.wait(timeout: .now() + 10) == .success else { break }
      while let job = executor.jobs.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) {
        unsafe job.runSynchronously(on: executor.asUnownedTaskExecutor())
      }
    }
    withExtendedLifetime(task) {}
    return result.text.withLock { $0 }
  }

  private final class Log: Sendable {
    let text = Mutex<String?>(nil)
  }
}
