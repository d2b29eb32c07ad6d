/// An error of a store that says whether it may pass by itself.
///
/// ```swift
/// extension DatabaseError: PersistenceError {
///   var isTransient: Bool { isConnectionLost || isSerializationFailure }
/// }
/// ```
/// A queue makes a call again whose error is transient, after a while and as often as it takes. So
/// a database that fails over stops no worker. Any other error ends the queue's run.
///
/// ## What a store promises with a transient error
///
/// - The same call may succeed a little later, although no person has done anything.
/// - The call may have been carried out, as when a connection breaks before the answer has come.
///   Then a call that is made again must be understood:
///   - An insertion whose task is in the store has the outcome ``ChangeOutcome/done``, and changes
///     nothing (``TaskRecord/isStored(as:)``).
///   - A change that names a lease is ``ChangeOutcome/stale``, because its first sending has ended
///     the claim. The queue looks the task up to tell what it was.
///   - A batch that compares a value (``TaskChange/setValue(named:from:to:)``) is not sent again,
///     because the comparison would fail. Its caller gets the error.
/// - A claim has handed out nothing, if one queue uses the store. In a store that several queues
///   share, tasks whose answer was lost are handed out again when their claims have run out.
///
/// A caller that is cancelled while the queue waits gets the store's error, and does not know
/// whether the call was carried out. So give a call a limit where its caller can't wait for long.
///
/// A store that can tell whether a call was carried out, for example because it has stored a number
/// with each batch, answers the call itself, and throws nothing.
public protocol PersistenceError: Error {
  /// Whether the same call may succeed a little later.
  var isTransient: Bool { get }
}

extension Error {
  /// Whether a store says that the error may pass by itself.
  var isTransientFailure: Bool { (self as? any PersistenceError)?.isTransient ?? false }
}
