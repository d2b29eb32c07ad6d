extension Backoff: CustomStringConvertible {
  /// A text such as `exponential from 0.5 seconds × 1.5, ± 50.0 %, at most 60.0 seconds`.
  public var description: String {
    let parts = [shape.description, jitter?.description, cap.map { "at most \($0)" }]
    return parts.compactMap(\.self).joined(separator: ", ")
  }
}

extension BackoffShape: CustomStringConvertible {
  var description: String {
    switch self {
    case .constant(.zero): "immediate"
    case .constant(let interval): "constant \(interval)"
    case .linear(let first, let step): "linear from \(first) by \(step)"
    case .exponential(let first, let multiplier): "exponential from \(first) × \(multiplier)"
    case .fibonacci(let first): "fibonacci from \(first)"
    case .custom: "custom"
    }
  }
}

extension Jitter: CustomStringConvertible {
  /// A text such as `full jitter` or `± 50.0 %`.
  public var description: String {
    switch self {
    case .full: "full jitter"
    case .equal: "equal jitter"
    case .proportional(let factor): "± \(factor * 100) %"
    case .decorrelated: "decorrelated jitter"
    }
  }
}
