// https://developer.apple.com/documentation/dispatch
//
// That `wait` is not for asynchronous code stands in the SDK, and not in its documentation.

// https://developer.apple.com/documentation/dispatch/dispatchobject
open class DispatchObject {
  init() {}

  // https://developer.apple.com/documentation/dispatch/dispatchobject/activate()
  public func activate() { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchtimeinterval
public enum DispatchTimeInterval: Equatable, Sendable {
  case seconds(Int)
  case milliseconds(Int)
  case microseconds(Int)
  case nanoseconds(Int)
  case never
}

// https://developer.apple.com/documentation/dispatch/dispatchtime
public struct DispatchTime: Comparable, Sendable {
  public static func now() -> DispatchTime { fatalError() }
  public static func < (a: DispatchTime, b: DispatchTime) -> Bool { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchtime
public func + (time: DispatchTime, interval: DispatchTimeInterval) -> DispatchTime { fatalError() }
public func + (time: DispatchTime, seconds: Double) -> DispatchTime { fatalError() }

// https://developer.apple.com/documentation/dispatch/dispatchtimeoutresult
public enum DispatchTimeoutResult: Sendable {
  case success
  case timedOut
}

// https://developer.apple.com/documentation/dispatch/dispatchqos
public struct DispatchQoS: Equatable, Sendable {
  public enum QoSClass: Sendable {
    case background, utility, `default`, userInitiated, userInteractive, unspecified
  }

  public static let unspecified = DispatchQoS()
}

// https://developer.apple.com/documentation/dispatch/dispatchworkitemflags
public struct DispatchWorkItemFlags: OptionSet, Sendable {
  public let rawValue: UInt
  public init(rawValue: UInt) { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchgroup
open class DispatchGroup: DispatchObject, @unchecked Sendable {
  public override init() {}
  public func enter() { fatalError() }
  public func leave() { fatalError() }
  @available(*, noasync, message: "Use a TaskGroup instead")
  public func wait() { fatalError() }
  @available(*, noasync, message: "Use a TaskGroup instead")
  public func wait(timeout: DispatchTime) -> DispatchTimeoutResult { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchsemaphore
open class DispatchSemaphore: DispatchObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/dispatch/dispatchsemaphore/init(value:)
  public init(value: Int) { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchsemaphore/signal()
  @discardableResult
  public func signal() -> Int { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchsemaphore/wait()
  @available(*, noasync, message: "Await a Task handle instead")
  public func wait() { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchsemaphore/wait(timeout:)
  @available(*, noasync, message: "Await a Task handle instead")
  public func wait(timeout: DispatchTime) -> DispatchTimeoutResult { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchqueue
open class DispatchQueue: DispatchObject, @unchecked Sendable {
  public struct Attributes: OptionSet, Sendable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { fatalError() }
    public static let concurrent = Attributes(rawValue: 0)
  }

  public enum AutoreleaseFrequency: Sendable {
    case inherit, workItem, never
  }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/main
  public class var main: DispatchQueue { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/global(qos:)
  public class func global(qos: DispatchQoS.QoSClass = .default) -> DispatchQueue { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/init(label:qos:attributes:autoreleasefrequency:target:)
  public init(
    label: String,
    qos: DispatchQoS = .unspecified,
    attributes: Attributes = [],
    autoreleaseFrequency: AutoreleaseFrequency = .inherit,
    target: DispatchQueue? = nil
  ) { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/async(group:qos:flags:execute:)
  @preconcurrency
  public func async(
    group: DispatchGroup? = nil,
    qos: DispatchQoS = .unspecified,
    flags: DispatchWorkItemFlags = [],
    execute work: @escaping @Sendable () -> Void
  ) { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/asyncafter(deadline:qos:flags:execute:)
  @preconcurrency
  public func asyncAfter(
    deadline: DispatchTime,
    qos: DispatchQoS = .unspecified,
    flags: DispatchWorkItemFlags = [],
    execute work: @escaping @Sendable () -> Void
  ) { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/sync(execute:)
  public func sync<T>(execute work: () throws -> T) rethrows -> T { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchqueue/concurrentperform(iterations:execute:)
  public class func concurrentPerform(iterations: Int, execute work: (Int) -> Void) { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchsourceprotocol
public protocol DispatchSourceProtocol: AnyObject {}
extension DispatchSourceProtocol {
  // https://developer.apple.com/documentation/dispatch/dispatchsourceprotocol/seteventhandler(qos:flags:handler:)
  @preconcurrency
  public func setEventHandler(
    qos: DispatchQoS = .unspecified,
    flags: DispatchWorkItemFlags = [],
    handler: (@Sendable () -> Void)?
  ) { fatalError() }

  public func activate() { fatalError() }
  public func cancel() { fatalError() }
  public func resume() { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchsourcesignal
public protocol DispatchSourceSignal: DispatchSourceProtocol, Sendable {}

// https://developer.apple.com/documentation/dispatch/dispatchsourcetimer
public protocol DispatchSourceTimer: DispatchSourceProtocol, Sendable {}
extension DispatchSourceTimer {
  // https://developer.apple.com/documentation/dispatch/dispatchsourcetimer/schedule(deadline:repeating:leeway:)-24w9r
  public func schedule(
    deadline: DispatchTime,
    repeating interval: Double,
    leeway: DispatchTimeInterval = .nanoseconds(0)
  ) { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchsourcetimer/schedule(deadline:repeating:leeway:)-hvhp
  public func schedule(
    deadline: DispatchTime,
    repeating interval: DispatchTimeInterval = .never,
    leeway: DispatchTimeInterval = .nanoseconds(0)
  ) { fatalError() }
}

// https://developer.apple.com/documentation/dispatch/dispatchsource
open class DispatchSource: DispatchObject {
  public struct TimerFlags: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { fatalError() }
  }

  // https://developer.apple.com/documentation/dispatch/dispatchsource/maketimersource(flags:queue:)
  public class func makeTimerSource(
    flags: TimerFlags = [],
    queue: DispatchQueue? = nil
  ) -> any DispatchSourceTimer { fatalError() }

  // https://developer.apple.com/documentation/dispatch/dispatchsource/makesignalsource(signal:queue:)
  public class func makeSignalSource(
    signal: Int32,
    queue: DispatchQueue? = nil
  ) -> any DispatchSourceSignal { fatalError() }
}
