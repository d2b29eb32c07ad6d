#if canImport(Network)
import Dispatch
import Network
import Synchronization

/// Reports whether the machine has a network connection, on Apple's systems.
enum PathMonitor {
  static func values() -> AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let monitor = NWPathMonitor()
      let last = LastValue()
      monitor.pathUpdateHandler = { path in
        let holds = path.status == .satisfied
        // The handler is also called when the path changes in other ways, for instance from one
        // interface to another.
        if last.change(to: holds) { continuation.yield(holds) }
      }
      continuation.onTermination = { _ in monitor.cancel() }
      monitor.start(queue: DispatchQueue(label: "Steadfast.NetworkMonitor"))
    }
  }

  private final class LastValue: Sendable {
    private let value = Mutex<Bool?>(nil)

    /// Sets the value, and returns whether it changed.
    func change(to new: Bool) -> Bool {
      value.withLock { value in
        defer { value = new }
        return value != new
      }
    }
  }
}
#endif
