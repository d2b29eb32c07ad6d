import Dispatch

/// Resumes from a thread outside of Swift's pool, as after a system call.
func realDelay() async {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume() }
  }
}
