// https://developer.apple.com/documentation/foundation/url-loading-system

// https://developer.apple.com/documentation/foundation/urlrequest
public struct URLRequest: Hashable, Sendable {
  // https://developer.apple.com/documentation/foundation/urlrequest/cachepolicy-swift.typealias
  public enum CachePolicy: Sendable {
    case useProtocolCachePolicy
  }

  // https://developer.apple.com/documentation/foundation/urlrequest/init(url:cachepolicy:timeoutinterval:)
  public init(
    url: URL,
    cachePolicy: CachePolicy = .useProtocolCachePolicy,
    timeoutInterval: TimeInterval = 60.0
  ) { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlrequest/httpmethod
  public var httpMethod: String? {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/urlrequest/httpbody
  public var httpBody: Data? {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/urlrequest/setvalue(_:forhttpheaderfield:)
  public mutating func setValue(_ value: String?, forHTTPHeaderField field: String) {
    fatalError()
  }
}

// https://developer.apple.com/documentation/foundation/urlresponse
open class URLResponse: NSObject, @unchecked Sendable {}

// https://developer.apple.com/documentation/foundation/httpurlresponse
open class HTTPURLResponse: URLResponse, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/httpurlresponse/statuscode
  open var statusCode: Int { fatalError() }

  // https://developer.apple.com/documentation/foundation/httpurlresponse/value(forhttpheaderfield:)
  @available(macOS 10.15, iOS 13.0, tvOS 13.0, watchOS 6.0, *)
  open func value(forHTTPHeaderField field: String) -> String? { fatalError() }

  // https://developer.apple.com/documentation/foundation/httpurlresponse/localizedstring(forstatuscode:)
  open class func localizedString(forStatusCode statusCode: Int) -> String { fatalError() }
}

// https://developer.apple.com/documentation/foundation/operationqueue
open class OperationQueue: NSObject, @unchecked Sendable {}

// https://developer.apple.com/documentation/foundation/urlsessionconfiguration
open class URLSessionConfiguration: NSObject {
  open class var `default`: URLSessionConfiguration { fatalError() }
  open class var ephemeral: URLSessionConfiguration { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsessionconfiguration/background(withidentifier:)
  @available(macOS 10.10, iOS 8.0, *)
  open class func background(withIdentifier identifier: String) -> URLSessionConfiguration {
    fatalError()
  }

  // https://developer.apple.com/documentation/foundation/urlsessionconfiguration/httpmaximumconnectionsperhost
  open var httpMaximumConnectionsPerHost: Int {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/urlsessionconfiguration/timeoutintervalforrequest
  open var timeoutIntervalForRequest: TimeInterval {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/urlsessionconfiguration/timeoutintervalforresource
  open var timeoutIntervalForResource: TimeInterval {
    get { fatalError() }
    set { fatalError() }
  }
}

// https://developer.apple.com/documentation/foundation/urlsessiontask
open class URLSessionTask: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/urlsessiontask/taskdescription
  open var taskDescription: String? {
    get { fatalError() }
    set { fatalError() }
  }

  // https://developer.apple.com/documentation/foundation/urlsessiontask/cancel()
  open func cancel() { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsessiontask/resume()
  open func resume() { fatalError() }
}

// https://developer.apple.com/documentation/foundation/urlsessiondatatask
open class URLSessionDataTask: URLSessionTask, @unchecked Sendable {}

// https://developer.apple.com/documentation/foundation/urlsessiondelegate
public protocol URLSessionDelegate: NSObjectProtocol, Sendable {}

// https://developer.apple.com/documentation/foundation/urlsessiontaskdelegate
public protocol URLSessionTaskDelegate: URLSessionDelegate {
  // https://developer.apple.com/documentation/foundation/urlsessiontaskdelegate/urlsession(_:task:willperformhttpredirection:newrequest:completionhandler:)
  func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    willPerformHTTPRedirection response: HTTPURLResponse,
    newRequest request: URLRequest,
    completionHandler: @escaping @Sendable (URLRequest?) -> Void
  )

  // https://developer.apple.com/documentation/foundation/urlsessiontaskdelegate/urlsession(_:task:didcompletewitherror:)
  func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    didCompleteWithError error: (any Error)?
  )
}

// The requirements are optional, as only those of Objective-C can be.
extension URLSessionTaskDelegate {
  public func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    willPerformHTTPRedirection response: HTTPURLResponse,
    newRequest request: URLRequest,
    completionHandler: @escaping @Sendable (URLRequest?) -> Void
  ) { fatalError() }
  public func urlSession(
    _ session: URLSession,
    task: URLSessionTask,
    didCompleteWithError error: (any Error)?
  ) { fatalError() }
}

// https://developer.apple.com/documentation/foundation/urlsessiondatadelegate
public protocol URLSessionDataDelegate: URLSessionTaskDelegate {
  // https://developer.apple.com/documentation/foundation/urlsessiondatadelegate/urlsession(_:datatask:didreceive:completionhandler:)
  func urlSession(
    _ session: URLSession,
    dataTask: URLSessionDataTask,
    didReceive response: URLResponse,
    completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
  )

  // https://developer.apple.com/documentation/foundation/urlsessiondatadelegate/urlsession(_:datatask:didreceive:)
  func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data)
}

extension URLSessionDataDelegate {
  public func urlSession(
    _ session: URLSession,
    dataTask: URLSessionDataTask,
    didReceive response: URLResponse,
    completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
  ) { fatalError() }
  public func urlSession(
    _ session: URLSession,
    dataTask: URLSessionDataTask,
    didReceive data: Data
  ) { fatalError() }
}

// https://developer.apple.com/documentation/foundation/urlsession
open class URLSession: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/urlsession/responsedisposition
  public enum ResponseDisposition: Int, Sendable {
    case cancel, allow, becomeDownload, becomeStream
  }

  // https://developer.apple.com/documentation/foundation/urlsession/shared
  open class var shared: URLSession { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/init(configuration:)
  public init(configuration: URLSessionConfiguration) { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/init(configuration:delegate:delegatequeue:)
  public init(
    configuration: URLSessionConfiguration,
    delegate: (any URLSessionDelegate)?,
    delegateQueue queue: OperationQueue?
  ) { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/getalltasks(completionhandler:)
  @available(macOS 10.11, iOS 9.0, tvOS 9.0, watchOS 2.0, *)
  open func getAllTasks(completionHandler: @escaping @Sendable ([URLSessionTask]) -> Void) {
    fatalError()
  }

  // The same method, as the importer has it for Swift's `await`.
  @available(macOS 10.11, iOS 9.0, tvOS 9.0, watchOS 2.0, *)
  open var allTasks: [URLSessionTask] { get async { fatalError() } }

  // https://developer.apple.com/documentation/foundation/urlsession/data(for:delegate:)
  @available(macOS 12.0, iOS 15.0, tvOS 15.0, watchOS 8.0, *)
  public func data(
    for request: URLRequest,
    delegate: (any URLSessionTaskDelegate)? = nil
  ) async throws -> (Data, URLResponse) { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/upload(for:fromfile:delegate:)
  @available(macOS 12.0, iOS 15.0, tvOS 15.0, watchOS 8.0, *)
  public func upload(
    for request: URLRequest,
    fromFile fileURL: URL,
    delegate: (any URLSessionTaskDelegate)? = nil
  ) async throws -> (Data, URLResponse) { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/datatask(with:)
  open func dataTask(with request: URLRequest) -> URLSessionDataTask { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/finishtasksandinvalidate()
  open func finishTasksAndInvalidate() { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlsession/invalidateandcancel()
  open func invalidateAndCancel() { fatalError() }
}

// https://developer.apple.com/documentation/foundation/urlerror
public struct URLError: Error, Hashable, Sendable {
  // https://developer.apple.com/documentation/foundation/urlerror/code-swift.struct
  public struct Code: RawRepresentable, Hashable, Sendable {
    public let rawValue: Int
    public init(rawValue: Int) { fatalError() }

    public static var badServerResponse: Code { fatalError() }
    public static var networkConnectionLost: Code { fatalError() }
    public static var timedOut: Code { fatalError() }

    // So that `catch URLError.timedOut` finds the error.
    public static func ~= (code: Code, error: any Error) -> Bool { fatalError() }
  }

  public init(_ code: Code, userInfo: [String: Any] = [:]) { fatalError() }
  public var code: Code { fatalError() }

  // https://developer.apple.com/documentation/foundation/urlerror/timedout
  public static var timedOut: Code { fatalError() }
}
