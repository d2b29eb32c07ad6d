import Dispatch

/// Comes back from a thread outside of Swift's pool, as a system call's answer does.
func realDelay() async {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume() }
  }
}
