// https://developer.apple.com/documentation/foundation/filehandle
open class FileHandle: NSObject, @unchecked Sendable {
  // https://developer.apple.com/documentation/foundation/filehandle/standardoutput
  open class var standardOutput: FileHandle { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/standarderror
  open class var standardError: FileHandle { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/init(forreadingfrom:)
  public init(forReadingFrom url: URL) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/init(forwritingto:)
  public init(forWritingTo url: URL) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/init(forupdating:)
  public init(forUpdating url: URL) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/write(_:)
  open func write(_ data: Data) { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/write(contentsof:)
  @available(macOS 10.15.4, iOS 13.4, tvOS 13.4, watchOS 6.2, *)
  public func write<T: DataProtocol>(contentsOf data: T) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/readtoend()
  @available(macOS 10.15.4, iOS 13.4, tvOS 13.4, watchOS 6.2, *)
  public func readToEnd() throws -> Data? { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/seektoend()
  @available(macOS 10.15.4, iOS 13.4, tvOS 13.4, watchOS 6.2, *)
  @discardableResult
  public func seekToEnd() throws -> UInt64 { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/seek(tooffset:)
  @available(macOS 10.15, iOS 13.0, tvOS 13.0, watchOS 6.0, *)
  open func seek(toOffset offset: UInt64) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/truncate(atoffset:)
  @available(macOS 10.15, iOS 13.0, tvOS 13.0, watchOS 6.0, *)
  open func truncate(atOffset offset: UInt64) throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/synchronize()
  @available(macOS 10.15, iOS 13.0, tvOS 13.0, watchOS 6.0, *)
  open func synchronize() throws { fatalError() }

  // https://developer.apple.com/documentation/foundation/filehandle/close()
  @available(macOS 10.15, iOS 13.0, tvOS 13.0, watchOS 6.0, *)
  open func close() throws { fatalError() }
}
