// https://developer.apple.com/documentation/backgroundtasks
//
// The frameworks of macOS and watchOS have the module, too, with everything in it unavailable: its
// headers say API_UNAVAILABLE(macos) and API_UNAVAILABLE(watchos).

public import Dispatch
@_exported public import Foundation

// https://developer.apple.com/documentation/backgroundtasks/bgtask
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGTask: NSObject {
  // https://developer.apple.com/documentation/backgroundtasks/bgtask/identifier
  open var identifier: String { fatalError() }

  // https://developer.apple.com/documentation/backgroundtasks/bgtask/expirationhandler
  open var expirationHandler: (() -> Void)? {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/backgroundtasks/bgtask/settaskcompleted(success:)
  open func setTaskCompleted(success: Bool) { fatalError() }
}

// https://developer.apple.com/documentation/backgroundtasks/bgprocessingtask
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGProcessingTask: BGTask {}

// https://developer.apple.com/documentation/backgroundtasks/bgapprefreshtask
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGAppRefreshTask: BGTask {}

// https://developer.apple.com/documentation/backgroundtasks/bgcontinuedprocessingtask
@available(iOS 26.0, *)
@available(macOS, unavailable)
@available(tvOS, unavailable)
@available(visionOS, unavailable)
@available(watchOS, unavailable)
open class BGContinuedProcessingTask: BGTask, ProgressReporting {
  open var progress: Progress { fatalError() }
}

// https://developer.apple.com/documentation/backgroundtasks/bgtaskrequest
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGTaskRequest: NSObject {
  // https://developer.apple.com/documentation/backgroundtasks/bgtaskrequest/earliestbegindate
  open var earliestBeginDate: Date? {
    get { fatalError() }
    set { fatalError() }
  }

  override init() {}
}

// https://developer.apple.com/documentation/backgroundtasks/bgapprefreshtaskrequest
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGAppRefreshTaskRequest: BGTaskRequest {
  public init(identifier: String) { fatalError() }
}

// https://developer.apple.com/documentation/backgroundtasks/bgprocessingtaskrequest
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGProcessingTaskRequest: BGTaskRequest {
  public init(identifier: String) { fatalError() }

  // https://developer.apple.com/documentation/backgroundtasks/bgprocessingtaskrequest/requiresnetworkconnectivity
  open var requiresNetworkConnectivity: Bool {
    get { fatalError() }
    set { fatalError() }
  }
}

// https://developer.apple.com/documentation/backgroundtasks/bgtaskscheduler
@available(iOS 13.0, tvOS 13.0, visionOS 1.0, *)
@available(macOS, unavailable)
@available(watchOS, unavailable)
open class BGTaskScheduler: NSObject {
  // https://developer.apple.com/documentation/backgroundtasks/bgtaskscheduler/shared
  open class var shared: BGTaskScheduler { fatalError() }

  // https://developer.apple.com/documentation/backgroundtasks/bgtaskscheduler/register(fortaskwithidentifier:using:launchhandler:)
  @discardableResult
  open func register(
    forTaskWithIdentifier identifier: String,
    using queue: DispatchQueue?,
    launchHandler: @escaping (BGTask) -> Void
  ) -> Bool { fatalError() }

  // https://developer.apple.com/documentation/backgroundtasks/bgtaskscheduler/submit(_:)
  open func submit(_ taskRequest: BGTaskRequest) throws { fatalError() }
}
