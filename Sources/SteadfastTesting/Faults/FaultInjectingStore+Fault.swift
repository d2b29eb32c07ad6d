public import SteadfastQueue

extension FaultInjectingStore {
  /// What goes wrong with a call.
  @nonexhaustive
  public enum Fault: Sendable {
    /// It throws.
    case error(any Error)
    /// It does not go on until ``FaultInjectingStore/letGo()``, even if its caller is cancelled.
    case hang
    /// It takes so long on a clock; a caller that is cancelled waits no longer.
    case delay(Duration, on: any Clock<Duration>)
  }

  /// Where in a call a fault lies.
  public enum Moment: Sendable, Hashable {
    /// Before the store behind is asked. A call that throws has changed nothing, as when the disk is
    /// full.
    case beforeEffect
    /// After the store behind has done it, so that only the answer is concerned. A call that throws has
    /// changed what it was to change, and the caller cannot know, as when a connection breaks.
    case afterEffect
  }

  /// A call that was made to the store.
  public struct Call: Sendable, CustomStringConvertible {
    /// Which requirement of `Persistence` was called.
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
      /// `close()`.
      case close
      /// `destroy()`.
      case destroy
    }

    /// Its place among the calls of the store; the first is 1.
    public let number: Int
    /// What was called.
    public let kind: Kind
    /// What `apply` was to keep; empty for all others.
    public let changes: [TaskChange]

    /// The call's number and what was called.
    public var description: String { "\(number). \(kind)" }
  }
}
