// https://developer.apple.com/documentation/uikit

@_exported public import Foundation

// https://developer.apple.com/documentation/uikit/uibackgroundtaskidentifier
@available(iOS 4.0, tvOS 9.0, visionOS 1.0, *)
@available(watchOS, unavailable)
public struct UIBackgroundTaskIdentifier: Hashable, RawRepresentable, Sendable {
  public let rawValue: Int
  public init(rawValue: Int) { fatalError() }
  public static let invalid = UIBackgroundTaskIdentifier(rawValue: 0)
}

// https://developer.apple.com/documentation/uikit/uiresponder
@available(iOS 2.0, tvOS 9.0, visionOS 1.0, *)
@available(watchOS, unavailable)
@MainActor open class UIResponder: NSObject {}

// https://developer.apple.com/documentation/uikit/uiapplication
@available(iOS 2.0, tvOS 9.0, visionOS 1.0, *)
@available(watchOS, unavailable)
@MainActor open class UIApplication: UIResponder {
  // https://developer.apple.com/documentation/uikit/uiapplication/state
  public enum State: Int, Sendable {
    case active, inactive, background
  }

  // https://developer.apple.com/documentation/uikit/uiapplication/shared
  open class var shared: UIApplication { fatalError() }

  // https://developer.apple.com/documentation/uikit/uiapplication/applicationstate
  open var applicationState: State { fatalError() }

  // https://developer.apple.com/documentation/uikit/uiapplication/beginbackgroundtask(expirationhandler:)
  nonisolated open func beginBackgroundTask(
    expirationHandler handler: (@MainActor @Sendable () -> Void)? = nil
  ) -> UIBackgroundTaskIdentifier { fatalError() }

  // https://developer.apple.com/documentation/uikit/uiapplication/beginbackgroundtask(withname:expirationhandler:)
  nonisolated open func beginBackgroundTask(
    withName taskName: String?,
    expirationHandler handler: (@MainActor @Sendable () -> Void)? = nil
  ) -> UIBackgroundTaskIdentifier { fatalError() }

  // https://developer.apple.com/documentation/uikit/uiapplication/endbackgroundtask(_:)
  nonisolated open func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) {
    fatalError()
  }
}
