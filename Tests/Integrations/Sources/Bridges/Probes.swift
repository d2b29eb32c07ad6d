// Probes with Hummingbird. Copy this file: it is yours.

// snippet.file
import Hummingbird
import SteadfastQueue

/// Answers the probes of an orchestrator, such as Kubernetes.
func addProbes<Context>(for queue: TaskQueue, to router: Router<Context>) {
  router.get("ready") { _, _ in status(queue.health.isReady) }
  router.get("alive") { _, _ in status(queue.health.isAlive) }
}

private func status(_ isGood: Bool) -> HTTPResponse.Status {
  isGood ? .ok : .serviceUnavailable
}
// snippet.end
