extension TaskRecord: CustomStringConvertible {
  /// The name, the identity and the state, as in `PostComment 0199… (waiting, retry 2)`.
  ///
  /// It never shows the payload, keys, tags or errors.
  public var description: String {
    "\(name) \(id) (\(state)\(retryCount > 0 ? ", retry \(retryCount)" : ""))"
  }
}
