/// Removes elements from a list that fails, as long as it still fails.
///
/// - Returns: the smallest failing list that was found, with its failure.
package func shrunk<Element, Failure>(
  _ elements: [Element],
  failing failure: Failure,
  by failureOf: ([Element]) async -> Failure?
) async -> ([Element], Failure) {
  var (best, reason) = (elements, failure)
  var size = max(1, elements.count / 2)
  while true {
    var start = 0
    var hasShrunk = false
    while start < best.count {
      var smaller = best
      smaller.removeSubrange(start..<min(start + size, best.count))
      if let failure = await failureOf(smaller) {
        (best, reason, hasShrunk) = (smaller, failure, true)
      } else {
        start += size
      }
    }
    if size > 1 { size /= 2 } else if !hasShrunk { return (best, reason) }
  }
}
