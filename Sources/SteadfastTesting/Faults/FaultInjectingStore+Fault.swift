public import SteadfastQueue

extension FaultInjectingStore {
  /// What goes wrong in a call.
  @nonexhaustive
  public enum Fault: Sendable {
    /// The call throws this error.
    case error(any Error)
    /// The call waits until ``FaultInjectingStore/letGo()``, even if its caller is cancelled.
    case hang
    /// The call waits for this duration on a clock, or until its caller is cancelled.
    case delay(Duration, on: any Clock<Duration>)

    /// The call throws a ``TransientFault``, after which a queue makes it again.
    public static var transientError: Fault { .error(TransientFault()) }
  }

  /// When in a call a fault happens.
  @nonexhaustive
  public enum Moment: Sendable, Hashable {
    /// Before the underlying store is called.
    ///
    /// A call that throws has changed nothing, as when the disk is full.
    case beforeEffect
    /// After the underlying store has returned, so that only the answer is affected.
    ///
    /// A call that throws has made its changes, but the caller can't know, as when a connection
    /// breaks.
    case afterEffect
  }

  /// A call that was made to the store.
  public struct Call: Sendable, CustomStringConvertible {
    /// A requirement of `Persistence`.
    @nonexhaustive
    public enum Kind: String, Sendable, Hashable, CaseIterable {
      /// `open()`.
      case open
      /// `apply(_:durability:)`.
      case apply
      /// `claim(_:)`.
      case claim
      /// `tasks(matching:after:limit:)`.
      case tasks
      /// `count(matching:)`.
      case count
      /// `contains(_:)`.
      case contains
      /// `value(named:)`.
      case value
      /// `memory(of:)`.
      case memory
      /// `close()`.
      case close
      /// `destroy()`.
      case destroy
    }

    /// The call's place among the calls to the store; the first call is 1.
    public let number: Int
    /// The requirement that was called.
    public let kind: Kind
    /// The changes that `apply` was called with; empty for all other calls.
    public let changes: [TaskChange]

    /// The call's number and the requirement that was called.
    public var description: String { "\(number). \(kind)" }
  }
}
