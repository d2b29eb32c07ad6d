public import SystemFoundation

/// Who performs a task in a shared store, since when, and until when at least.
///
/// The dates are those of the store's clock, which may differ from the clock of the process that
/// reads them.
public struct TaskClaim: Sendable, Hashable {
  /// The process that performs the task: the first part of its host's name, its ID, the name of its
  /// queue and the version of the program (``TaskQueueConfiguration/programVersion``), with spaces
  /// between them.
  ///
  /// The text is cut to 64 bytes of UTF-8. It is empty if the process did not give it.
  public var holder: String
  /// When the task was claimed.
  public var date: Date
  /// When the claim ends unless it is extended; `nil` if it never ends.
  ///
  /// A queue extends its claims three times in each ``StoreSharing/leaseDuration``. So if this date
  /// has passed, the process has probably ended, or is suspended. The task waits again when another
  /// process claims tasks.
  public var endDate: Date?

  /// Makes a claim; stores call this initializer.
  public init(holder: String, date: Date, endDate: Date?) {
    self.holder = holder
    self.date = date
    self.endDate = endDate
  }
}

extension TaskClaim {
  /// The maximum length of ``holder``, in bytes of UTF-8.
  private static let maxHolderLength = 64

  /// Returns the text that names a queue of this process to others.
  static func holder(ofQueue queue: String, programVersion version: String) -> String {
    let host = hostName.prefix(ofLength: maxHolderLength / 2)
    let process = ProcessInfo.processInfo.processIdentifier
    let text = "\(host) \(process) \(queue)" + (version.isEmpty ? "" : " \(version)")
    return text.withoutNUL.prefix(ofLength: maxHolderLength)
  }
}
