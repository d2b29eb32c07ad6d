public import SystemFoundation

/// Your encryption of payloads: two functions that encrypt and decrypt them.
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
/// <doc:SealingPayloads> shows a seal with AES, and says which data is not encrypted.
public struct PayloadSeal: Sendable {
  let seal: @Sendable (Data, Context) throws -> Data
  let open: @Sendable (Data, Context) throws -> Data

  /// Makes a seal from two functions, each of which reverses the other.
  ///
  /// They are called in the isolation of callers that enqueue and of the queue's workers, possibly
  /// at the same time. They can't be `async`, so load the keys beforehand.
  ///
  /// - Parameters:
  ///   - seal: Returns the bytes to store instead of a payload. It is called once or more for each
  ///     new task. If it throws, `enqueue` throws the same error, and nothing is added. Encryption
  ///     must use a new random nonce for each call.
  ///   - open: Returns the payload for the stored bytes. If it throws, the task is parked, like a
  ///     task whose payload can't be decoded: it waits until a handler is registered for its name
  ///     again, or the queue runs again.
  public init(
    seal: @escaping @Sendable (_ payload: Data, _ context: Context) throws -> Data,
    open: @escaping @Sendable (_ sealed: Data, _ context: Context) throws -> Data
  ) {
    self.seal = seal
    self.open = open
  }

  /// What a payload belongs to, so that the encryption can authenticate it.
  public struct Context: Sendable, Hashable {
    /// The task's ID; all zeros if the task has a unique key.
    ///
    /// A task with a unique key can take over the payload of a later task with the same key.
    public let id: TaskID
    /// The task's unique key; `nil` if it has none.
    public let uniqueKey: String?
    /// The name under which the task's handler is registered.
    public let name: String
    /// The format of the payload's bytes before they are sealed.
    public let format: StoredPayload.Format
    /// The schema version of the payload's type.
    public let version: Int

    /// Makes a context, for tests of a seal.
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
    /// If a payload was encrypted with this data, it can't be decrypted as the payload of another
    /// task. There is one exception: tasks with a unique key have the same data if their name, key,
    /// format and version are the same.
    ///
    /// The data consists of the 16 bytes of the ID; the 8 bytes of the version, highest byte first;
    /// one byte that is 0 for JSON and 1 for other bytes; the name in UTF-8; and, if there is a
    /// unique key, the key in UTF-8 and its length in bytes, as 8 bytes, highest byte first. The
    /// data is the same in every version of this library.
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
