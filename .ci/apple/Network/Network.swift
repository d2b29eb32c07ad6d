// https://developer.apple.com/documentation/network

public import Dispatch

// https://developer.apple.com/documentation/network/nwpath
@available(macOS 10.14, iOS 12.0, tvOS 12.0, watchOS 5.0, visionOS 1.0, *)
public struct NWPath: Equatable, Sendable {
  // https://developer.apple.com/documentation/network/nwpath/status-swift.enum
  public enum Status: Equatable, Sendable {
    case satisfied
    case unsatisfied
    case requiresConnection
  }

  // https://developer.apple.com/documentation/network/nwpath/status-swift.property
  public let status: Status
}

// https://developer.apple.com/documentation/network/nwpathmonitor
@available(macOS 10.14, iOS 12.0, tvOS 12.0, watchOS 5.0, visionOS 1.0, *)
public final class NWPathMonitor: @unchecked Sendable {
  // https://developer.apple.com/documentation/network/nwpathmonitor/init()
  public init() { fatalError() }

  // https://developer.apple.com/documentation/network/nwpathmonitor/pathupdatehandler
  @preconcurrency public final var pathUpdateHandler: (@Sendable (NWPath) -> Void)? {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/network/nwpathmonitor/start(queue:)
  public final func start(queue: DispatchQueue) { fatalError() }

  // https://developer.apple.com/documentation/network/nwpathmonitor/cancel()
  public final func cancel() { fatalError() }
}

// https://developer.apple.com/documentation/network/nwpathmonitor/iterator
@available(macOS 14.0, iOS 17.0, tvOS 17.0, watchOS 10.0, visionOS 1.0, *)
extension NWPathMonitor: AsyncSequence {
  public typealias Element = NWPath

  public struct Iterator: AsyncIteratorProtocol {
    public mutating func next() async -> NWPath? { fatalError() }
  }

  public func makeAsyncIterator() -> Iterator { fatalError() }
}
