public import SystemFoundation

/// Your encryption: it makes stored payloads unreadable, and readable again.
///
/// ```swift
/// let seal = PayloadSeal { payload, context in
///   try box.seal(payload, authenticating: context.authenticatedData)
/// } open: { sealed, context in
///   try box.open(sealed, authenticating: context.authenticatedData)
/// }
/// let store = JSONFileStore(at: url).sealingPayloads(with: seal)
/// let queue = TaskQueue(persistence: store)
/// ```
///
/// <doc:SealingPayloads> shows a seal with AES, and says what stays readable nevertheless.
public struct PayloadSeal: Sendable {
  let seal: @Sendable (Data, Context) throws -> Data
  let open: @Sendable (Data, Context) throws -> Data

  /// Makes a seal from two functions, each of which reverses the other.
  ///
  /// They are called in the isolation of the caller that enqueues, and of a queue's workers,
  /// several at a time. Load the keys beforehand: the functions must not wait.
  ///
  /// - Parameters:
  ///   - seal: Returns the bytes to store instead of a payload. It is called once or more for each
  ///     new task. If it throws, `enqueue` throws the same error, and nothing is added. Encryption
  ///     must use a new random nonce for each call.
  ///   - open: Returns the payload for stored bytes. If it throws, the task is parked, like a task
  ///     whose payload can't be decoded, until a handler is registered for it again or the queue
  ///     runs again.
  public init(
    seal: @escaping @Sendable (_ payload: Data, _ context: Context) throws -> Data,
    open: @escaping @Sendable (_ sealed: Data, _ context: Context) throws -> Data
  ) {
    self.seal = seal
    self.open = open
  }

  /// The task that a payload belongs to.
  public struct Context: Sendable, Hashable {
    /// The task's ID; all zeros for a task with a unique key.
    ///
    /// Such a task can take over the payload of a later task with the same key.
    public let id: TaskID
    /// The task's unique key, if it has one.
    public let uniqueKey: String?
    /// The name under which its handler is found.
    public let name: String
    /// The format of the payload's bytes before they are sealed.
    public let format: StoredPayload.Format
    /// The schema version of the payload's type.
    public let version: Int

    /// Makes a context for testing a seal; a store that seals payloads makes its own.
    public init(
      id: TaskID,
      uniqueKey: String? = nil,
      name: String,
      format: StoredPayload.Format,
      version: Int
    ) {
      self.id = id
      self.uniqueKey = uniqueKey
      self.name = name
      self.format = format
      self.version = version
    }

    /// The properties of the context as bytes, for authenticated encryption.
    ///
    /// Bytes that were sealed with this data can't be opened as the payload of another task, except
    /// a task with the same name, unique key, format and version: ``id`` is all zeros if there is a
    /// unique key.
    ///
    /// The data consists of the 16 bytes of the ID; the 8 bytes of the version, highest byte first;
    /// one byte that is 0 for JSON and 1 for other bytes; the name in UTF-8; and, if there is a
    /// unique key, the key in UTF-8 and its length in bytes, as 8 bytes, highest byte first. It is
    /// the same in every version of this library.
    public var authenticatedData: Data {
      var data = Data(capacity: 25 + name.utf8.count)
      func append(_ number: UInt64) {
        for shift in stride(from: 56, through: 0, by: -8) {
          data.append(UInt8(truncatingIfNeeded: number >> UInt64(shift)))
        }
      }
      append(id.high)
      append(id.low)
      append(UInt64(bitPattern: Int64(version)))
      data.append(format == .json ? 0 : 1)
      data.append(contentsOf: name.utf8)
      if let uniqueKey {
        data.append(contentsOf: uniqueKey.utf8)
        append(UInt64(uniqueKey.utf8.count))
      }
      return data
    }
  }
}
