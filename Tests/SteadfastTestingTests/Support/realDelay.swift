import Dispatch

/// Suspends the caller until a thread outside of Swift's pool resumes it, as after a system call.
func realDelay() async {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume() }
  }
}
