extension RateLimits {
  /// The tasks of a claim that may not begin, under their places in it: until when they are put
  /// off, or `nil` if they return to their places in line.
  typealias Denials = [Int: Int64?]
}

extension RateLimits.Admission {
  /// The tasks that may not begin.
  var denials: RateLimits.Denials {
    var denials: RateLimits.Denials = [:]
    for index in released { denials.updateValue(nil, forKey: index) }
    for (index, date) in postponed { denials.updateValue(date, forKey: index) }
    return denials
  }

  /// Notes that a task may not begin.
  mutating func deny(_ index: Int, until date: Int64?) {
    if let date { postponed.append((index, date)) } else { released.append(index) }
  }
}
