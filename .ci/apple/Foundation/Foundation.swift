// What Apple's Foundation has in one module. Its parts that are written in Swift are the same code on
// Linux (https://github.com/swiftlang/swift-foundation), with the availability for Apple's systems.
@_exported public import Darwin
@_exported public import Dispatch
@_exported public import FoundationEssentials
@_exported public import FoundationInternationalization

// https://developer.apple.com/documentation/objectivec/nsobjectprotocol
public protocol NSObjectProtocol: AnyObject {}

// https://developer.apple.com/documentation/objectivec/nsobject-swift.class
open class NSObject: NSObjectProtocol {
  public init() {}
}

// https://developer.apple.com/documentation/foundation/progressreporting
public protocol ProgressReporting: NSObjectProtocol {
  // https://developer.apple.com/documentation/foundation/progressreporting/progress
  var progress: Progress { get }
}

// https://developer.apple.com/documentation/foundation/progress
open class Progress: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/progress/totalunitcount
  open var totalUnitCount: Int64 {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/progress/completedunitcount
  open var completedUnitCount: Int64 {
    get { fatalError() }
    set { fatalError() }
  }
}

// https://developer.apple.com/documentation/foundation/thread
open class Thread: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/thread/detachnewthread(_:)
  @available(macOS 10.12, iOS 10.0, tvOS 10.0, watchOS 3.0, *)
  open class func detachNewThread(_ block: @escaping @Sendable () -> Void) { fatalError() }

  // https://developer.apple.com/documentation/foundation/thread/init(block:)
  @available(macOS 10.12, iOS 10.0, tvOS 10.0, watchOS 3.0, *)
  public init(block: @escaping @Sendable () -> Void) { fatalError() }

  // https://developer.apple.com/documentation/foundation/thread/start()
  open func start() { fatalError() }
}

// https://developer.apple.com/documentation/objectivec/objcbool
public struct ObjCBool: ExpressibleByBooleanLiteral, Sendable {
  public init(booleanLiteral value: Bool) { fatalError() }
  public var boolValue: Bool { fatalError() }
}

extension Error {
  // https://developer.apple.com/documentation/swift/error/localizeddescription
  public var localizedDescription: String { fatalError() }
}

extension StringProtocol {
  // https://developer.apple.com/documentation/swift/stringprotocol/padding(tolength:withpad:startingat:)
  public func padding<T: StringProtocol>(
    toLength newLength: Int,
    withPad padString: T,
    startingAt padIndex: Int
  ) -> String { fatalError() }
}

extension FileManager {
  // https://developer.apple.com/documentation/foundation/filemanager/fileexists(atpath:isdirectory:)
  public func fileExists(
    atPath path: String,
    isDirectory: UnsafeMutablePointer<ObjCBool>?
  ) -> Bool { fatalError() }
}

// https://developer.apple.com/documentation/foundation/dateformatter
open class DateFormatter: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/dateformatter/locale
  open var locale: Locale! {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/dateformatter/dateformat
  open var dateFormat: String! {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/dateformatter/date(from:)
  open func date(from string: String) -> Date? { fatalError() }
}

extension URL {
  // https://developer.apple.com/documentation/foundation/url/applicationsupportdirectory
  @available(macOS 13.0, iOS 16.0, tvOS 16.0, watchOS 9.0, *)
  public static var applicationSupportDirectory: URL { fatalError() }

  // https://developer.apple.com/documentation/foundation/url/documentsdirectory
  @available(macOS 13.0, iOS 16.0, tvOS 16.0, watchOS 9.0, *)
  public static var documentsDirectory: URL { fatalError() }
}
