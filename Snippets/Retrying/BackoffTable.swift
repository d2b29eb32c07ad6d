//! Prints the delays of some policies next to each other, to choose one or to see what jitter does.

import SteadfastRetry

// snippet.policies
let backoffs: [(name: String, backoff: Backoff)] = [
  ("default", .default),
  (
    "full jitter",
    .exponential(from: .milliseconds(100)).jittered(.full).capped(
      at: .seconds(10)
    )
  ),
  ("fibonacci", .fibonacci(from: .seconds(1)).capped(at: .seconds(30))),
  (
    "decorrelated",
    .constant(.seconds(1)).jittered(.decorrelated).capped(at: .seconds(30))
  ),
]
let columns = backoffs.map {
  $0.backoff.delays(first: 10, randomness: .seeded(42))
}
// snippet.end

/// The seconds with three digits after the point, right-aligned.
func cell(_ delay: Duration) -> String {
  let milliseconds = Int((delay / .milliseconds(1)).rounded())
  let fraction = String(milliseconds % 1000)
  let text =
    "\(milliseconds / 1000)." + String(repeating: "0", count: 3 - fraction.count) + fraction
  return String(repeating: " ", count: max(14 - text.count, 0)) + text
}

for (name, backoff) in backoffs { print("\(name): \(backoff)") }
print(
  "\nretry" + backoffs.map { String(repeating: " ", count: 14 - $0.name.count) + $0.name }.joined()
)
for retry in 0..<10 {
  let number = String(retry + 1)
  let label = String(repeating: " ", count: 5 - number.count) + number
  print(label + columns.map { cell($0[retry]) }.joined())
}
