/// Whoever keeps a clock still while real work is in flight.
package protocol RealWorkObserver: Sendable {
  /// Some work began; each call is followed by one of ``realWorkEnded()``, from any thread.
  func realWorkBegan()
  /// Some work ended, and what waited for it has been resumed.
  func realWorkEnded()
}
